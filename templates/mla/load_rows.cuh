// Loads kv blocks of a paged latent cache with fp8 rows (mla/latent_row.cuh), and widens them into the stages of
// mla/latent_tile.cuh.
#pragma once
#include "attention/kv_tile.cuh"
#include "kiln/block_copy.cuh"
#include "mla/latent_row.cuh"
#include "mla/latent_tile.cuh"

namespace kiln {

// The rows of a kv block that a warp of the loading warpgroup has. A lane has 16 codes of each row.
template <typename T>
struct WarpRows {
  enum : int { ROWS = Latent::BLOCK / 4, AHEAD = 8 };  // AHEAD: rows whose codes are in registers

  const u8* cache;
  int lane;
  Vec<u8, 16> codes[AHEAD];  // of row i at i % AHEAD
  f32 scales[ROWS / 8];      // lane 4 r + g has the scale of group g of row r, and of rows r + 8 and so on

  __device__ __forceinline__ explicit WarpRows(const u8* rows) : cache(rows), lane(threadIdx.x % 32) {}

  // The warp's first row in the kv block. It is computed again where it is used, to save a register.
  __device__ static __forceinline__ int first() { return fresh(threadIdx.x) / 32 % 4 * ROWS; }

  // Places count units of 16 bytes from the cache's begin; lane i has the place of the warp's row i. `rows` is the number of
  // rows that there are; nothing is read of rows after them.
  __device__ __forceinline__ const u8* row(u32 place, int i) const {
    return cache + static_cast<u64>(__shfl_sync(0xffffffffu, place, i)) * 16;
  }
  __device__ __forceinline__ void load_codes(u32 place, i32 rows, int i) {
    const u8* const from = row(place, i);
    if (i < rows) codes[i % AHEAD] = load<16>(from + lane * 16);
  }
  __device__ __forceinline__ void load_scales(f32 (&to)[ROWS / 8], u32 place, i32 rows) const {
#pragma unroll
    for (int j = 0; j < ROWS / 8; ++j) {
      const u8* const from = row(place, j * 8 + lane / 4) + LatentRow::SCALES_AT + lane % 4 * 4;
      if (j * 8 + lane / 4 < rows) to[j] = load_one(reinterpret_cast<const f32*>(from));
    }
  }
  // Brings the rows into the L2, line by line: a bulk prefetch of each lane's row would take about 70 cycles for each lane.
  __device__ __forceinline__ void prefetch(u32 place, i32 rows) const {
    constexpr int LINES = 6;  // of 128 bytes, that a row may touch
#pragma unroll
    for (int j = 0; j < ROWS * LINES; j += 32) {
      const int i = (j + lane) / LINES, line = (j + lane) % LINES;
      const u8* const from = row(place, i) + min(line * 128, LatentRow::size<e4m3>() - 16);
      if (i < rows) prefetch_line(from);
    }
  }
  // Begins to copy the rotated elements, which stay as they are.
  __device__ __forceinline__ void copy_rotated(u32 panel, u32 place, i32 rows) const {
#pragma unroll
    for (int j = 0; j < ROWS / 4; ++j) {
      const int thread = fresh(lane), i = j * 4 + thread / 8, chunk = thread % 8;
      const u8* const from = row(place, i) + LatentRow::ROTATED_AT + chunk * 16;
      copy_async_or_zero(panel + (first() + i) * 128 + (chunk ^ i % 8) * 16, from, i < rows);
    }
  }
  // Widens the codes of row i, and writes them to the panels. Lanes of every second panel write their chunks in the other
  // order, so that eight lanes write to different banks.
  __device__ __forceinline__ void put(Panel<T, 64>* panels, int i) const {
    const f32 scale = __shfl_sync(0xffffffffu, scales[i / 8], i % 8 * 4 + lane / 8) * E4M3_UNIT;
    const int thread = fresh(lane);  // the addresses of all rows would otherwise stay in registers
    const bool other = thread / 4 % 2 != 0;
    u8* const to = reinterpret_cast<u8*>(panels[thread / 4]) + (first() + i) * 128;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      u32 out[4];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const u32 word = other ? codes[i % AHEAD].word[2 - 2 * j + k] : codes[i % AHEAD].word[2 * j + k];
        const Vec<f16, 4> halves{{half_pair<false>(word), half_pair<true>(word)}};
        f32 x[4];
        widen(halves, x);
        out[2 * k] = pack<T>(x[0] * scale, x[1] * scale);
        out[2 * k + 1] = pack<T>(x[2] * scale, x[3] * scale);
      }
      const int chunk = thread % 4 * 2 + (other ? 1 - j : j);
      *reinterpret_cast<uint4*>(to + (chunk ^ i % 8) * 16) = make_uint4(out[0], out[1], out[2], out[3]);
    }
  }
};

// Loads all kv blocks of the block's tiles. All threads of one warpgroup call it; BARRIER is theirs. Each warp has 16 rows of a
// kv block. Rows come to the L2 a kv block ahead, and to registers AHEAD rows ahead.
template <int BARRIER, typename T, typename Tiles>
__device__ __forceinline__ void load_rows(LatentStages<T>& shared, Tiles& tiles, const AttentionPlan& work,
                                          const u8* cache, const i32* kv_indices, i32 page_size,
                                          i64 stride_page, i64 stride_slot) {
  constexpr int BLOCK = Latent::BLOCK, ROWS = WarpRows<T>::ROWS, AHEAD = WarpRows<T>::AHEAD;
  WarpRows<T> own(cache);
  u32 parity = 3;  // bit i: of the rounds through stage i, which begins empty
  int stage = 0;
  while (true) {
    sync_threads(BARRIER, 128);
    if (threadIdx.x % 128 == 0) tiles.next(work, -1);
    sync_threads(BARRIER, 128);
    if (!tiles.any()) return;
    const i32 end = tiles.now.kv_end;
    const i32* const pages = kv_indices + tiles.now.kv_base;
    // The page of lane i's row in the kv block that begins at `kv`, and the place of this row.
    const auto page_of = [&](i32 kv) {
      const i32 at = kv + own.first() + own.lane % ROWS;
      return at < end ? static_cast<i32>(load<1>(pages + static_cast<u32>(at) / page_size).word[0]) : 0;
    };
    const auto place_of = [&](i32 kv, i32 page) {
      const u32 entry = static_cast<u32>(kv + own.first() + own.lane % ROWS) % page_size;
      return static_cast<u32>((page * stride_page + entry * stride_slot) / 16);
    };
    const auto rows_of = [&](i32 kv) { return end - kv - own.first(); };

    i32 kv = tiles.now.kv_begin;
    if (kv >= end) continue;
    const i32 first_page = page_of(kv), second_page = page_of(kv + BLOCK);
    u32 place = place_of(kv, first_page), next = place_of(kv + BLOCK, second_page);
    own.prefetch(next, rows_of(kv + BLOCK));
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) own.load_codes(place, rows_of(kv), i);
    own.load_scales(own.scales, place, rows_of(kv));
    stage = 0;
#pragma unroll 1
    for (; kv < end; kv += BLOCK) {
      const i32 page = page_of(kv + 2 * BLOCK);
      f32 next_scales[ROWS / 8] = {};
      own.load_scales(next_scales, next, rows_of(kv + BLOCK));
      shared.empty[stage][Latent::LAST].wait(parity >> stage & 1);
      own.copy_rotated(shared_address(shared.k[stage][Latent::PANELS - 1]), place, rows_of(kv));
      copy_async_commit();
      shared.empty[stage][Latent::LEFT].wait(parity >> stage & 1);
      shared.empty[stage][Latent::RIGHT].wait(parity >> stage & 1);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        own.put(shared.k[stage], i);
        if (i + AHEAD < ROWS) {
          own.load_codes(place, rows_of(kv), i + AHEAD);
        } else {
          own.load_codes(next, rows_of(kv + BLOCK), i + AHEAD - ROWS);
        }
      }
      copy_async_wait<0>();
      fence_async_shared();
      __syncwarp();
      if (own.lane < Latent::PANELS) shared.full[stage][own.lane].arrive();
      place = next;
      next = place_of(kv + 2 * BLOCK, page);
      own.prefetch(next, rows_of(kv + 2 * BLOCK));
#pragma unroll
      for (int j = 0; j < ROWS / 8; ++j) own.scales[j] = next_scales[j];
      parity ^= 1 << stage;
      stage ^= 1;
    }
  }
}

}  // namespace kiln
