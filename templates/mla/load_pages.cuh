// Loads kv blocks of a paged latent cache by TMA into the stages of mla/latent_tile.cuh.
#pragma once
#include "mla/latent_tile.cuh"

namespace kiln {

// Loads the kv blocks of the block's tiles. Four warps share this work, so that none waits for a part while another part is free.
// A warp has stage warp / 2. Even warps load the left panels, and odd ones the right panels and the last one. All lanes of a
// warp call it with the warp's own `tiles`.
//
// A kv block consists of boxes, which do not cross the border of a page: 64 elements of gcd(page_size, 64) tokens. Each of the
// first lanes has a box in every panel. Rows after a tile's last token may stay as they are.
// REQUIRES: page_size is a multiple of 8, so that each box begins at a whole pattern of the swizzle.
template <typename T, typename Tiles>
__device__ __forceinline__ void load_pages(LatentStages<T>& shared, Tiles& tiles, int warp,
                                           const TensorMap& map, const AttentionPlan& work,
                                           const i32* kv_indices, i32 page_size) {
  constexpr int BLOCK = Latent::BLOCK, PANELS = Latent::SIDE_PANELS;
  const int lane = threadIdx.x % 32, stage = warp / 2, part = warp % 2;
  const i32 box = min(page_size & -page_size, BLOCK);  // tokens
  Barrier* const full = shared.full[stage];
  u32 parity = 1;  // the stage begins empty
  while (true) {
    __syncwarp();
    if (lane == 0) tiles.next(work, -1);
    __syncwarp();
    if (!tiles.any()) return;
    const i32 end = tiles.now.kv_end;
    const i32* const pages = kv_indices + tiles.now.kv_base;
    // The lane's box in the kv block that begins at `kv`.
    const auto exists = [&](i32 kv) { return lane * box < min(BLOCK, end - kv); };
    const auto page_of = [&](i32 kv) {
      return exists(kv)
                 ? static_cast<i32>(load<1>(pages + static_cast<u32>(kv + lane * box) / page_size).word[0])
                 : 0;
    };
    i32 kv = tiles.now.kv_begin + stage * BLOCK;
    i32 page = page_of(kv);
#pragma unroll 1
    for (; kv < end; kv += 2 * BLOCK) {
      const u32 entry = static_cast<u32>(kv + lane * box) % page_size;
      const u32 bytes = ((min(BLOCK, end - kv) + box - 1) & -box) * 128;
      const bool has_box = exists(kv);
      const i32 next = page_of(kv + 2 * BLOCK);
      const auto load_panel = [&](int i) {
        T* const to = shared.k[stage][i] + lane * box * 64;
        tma_load(to, map, full[i], i * 64, entry, page, L2::evict_first);
      };
      shared.empty[stage][part].wait(parity);
      if (lane < PANELS) full[part * PANELS + lane].arrive_expecting(bytes);
      __syncwarp();
      if (has_box) {
#pragma unroll
        for (int i = 0; i < PANELS; ++i) load_panel(part * PANELS + i);
      }
      if (part == 1) {
        shared.empty[stage][Latent::LAST].wait(parity);
        if (lane == 0) full[Latent::PANELS - 1].arrive_expecting(bytes);
        __syncwarp();
        if (has_box) load_panel(Latent::PANELS - 1);
      }
      page = next;
      parity ^= 1;
    }
  }
}

}  // namespace kiln
