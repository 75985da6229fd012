// Loads kv blocks of a paged latent cache by TMA into the stages of mla/latent_tile.cuh.
#pragma once
#include "mla/latent_tile.cuh"

namespace kiln {

// Loads all kv blocks of the block's tiles. A kv block consists of boxes, which do not cross the border of a page: 64 elements of
// gcd(page_size, 64) tokens. Rows after a tile's last token may stay as they are. All lanes of one warp call it; each of the
// first lanes has a box in every panel.
// REQUIRES: page_size is a multiple of 8, so that each box begins at a whole pattern of the swizzle.
template <typename T, typename Tiles>
__device__ __forceinline__ void load_pages(LatentStages<T>& shared, Tiles& tiles, const TensorMap& map,
                                           const AttentionPlan& work, const i32* kv_indices, i32 page_size) {
  constexpr int BLOCK = Latent::BLOCK;
  const int lane = threadIdx.x % 32;
  const i32 box = min(page_size & -page_size, BLOCK);  // tokens
  u32 parity = 3;  // bit i: of the rounds through stage i, which begins empty
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
    const auto load_block = [&](int stage, i32 kv, i32 page) {
      const u32 entry = static_cast<u32>(kv + lane * box) % page_size;
      const u32 bytes = ceil_div(min(BLOCK, end - kv), box) * box * 128;
#pragma unroll 1
      for (int turn = 0; turn < Latent::PARTS; ++turn) {
        const int part = (turn + Latent::LAST) % Latent::PARTS;  // the last part is free first
        shared.empty[stage][part].wait(parity >> stage & 1);
        if (lane == 0) {
          for (int i = Latent::begin_of(part); i < Latent::end_of(part); ++i)
            shared.full[stage][i].arrive_expecting(bytes);
        }
        __syncwarp();
        if (!exists(kv)) continue;
        for (int i = Latent::begin_of(part); i < Latent::end_of(part); ++i)
          tma_load(shared.k[stage][i] + lane * box * 64, map, shared.full[stage][i], i * 64, entry, page,
                   L2::evict_first);
      }
      parity ^= 1 << stage;
    };
    i32 page = page_of(tiles.now.kv_begin);
    for (i32 kv = tiles.now.kv_begin; kv < end; kv += 2 * BLOCK) {
      const i32 second = page_of(kv + BLOCK);
      load_block(0, kv, page);
      if (kv + BLOCK >= end) break;
      page = page_of(kv + 2 * BLOCK);
      load_block(1, kv + BLOCK, second);
    }
  }
}

}  // namespace kiln
