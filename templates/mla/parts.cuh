// Parts of a tile of attention over a latent cache: how they lie in the workspace, and how they are merged.
//
// A slot has the sums at each thread's own place, and then the shift and the sum of the weights of each row. Sums and shifts are
// kept apart: next to a shift of -2e5 the logarithm of a sum has no digits left.
#pragma once
#include "kiln/hopper/warpgroup.cuh"
#include "mla/latent_tile.cuh"
#include "mla/merge_share.cuh"

namespace kiln {

// The merge of a tile is divided into slices of 16 rows and 8 * WIDE columns. Up to WARPS warps share a slice, and each of
// them sums up some of the parts.
template <typename T>
struct LatentParts {
  enum : int { ROWS = 64, THREADS = 256, WARPS = THREADS / 32, SIDE = Latent::VALUES / 2 };
  enum : int { SUMS = ROWS * Latent::VALUES, SLOT = SUMS + 4 * ROWS };  // words
  enum : int { WIDE = 8, BATCH = 2 };       // products of 8 columns; parts whose loads are in flight together
  enum : int { EXCHANGED = 4 * WIDE + 4 };  // words of a thread

  static_assert(SLOT == 128 * (SIDE + 2), "the workspace of the manifest has room for a slot");

  f32* workspace;

  __device__ __forceinline__ f32* slot(i32 i) const { return workspace + static_cast<i64>(i) * SLOT; }

  // Writes the thread's sums of a part. The warp has 16 rows of a side, which both sides have in common.
  __device__ __forceinline__ void save(i32 to_slot, const f32 (&sums)[SIDE / 2],
                                       const SoftmaxRow (&row)[2]) const {
    f32* const to = slot(to_slot);
#pragma unroll
    for (int n = 0; n < SIDE / 8; ++n) {
      const f32 x[4] = {sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]};
      store(to + threadIdx.x * 4 + n * THREADS * 4, narrow<f32>(x));
    }
    if (threadIdx.x < THREADS / 2 && threadIdx.x % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const f32 x[2] = {row[h].shift, row[h].sum};
        store(to + SUMS + (wgmma_row() + 8 * h) * 2, narrow<f32>(x));
      }
    }
  }

  // The sums of some parts of a slice: of the thread's rows h = 0 and 1, as wgmma lays them out.
  struct Slice {
    f32 sums[WIDE][4] = {};
    SoftmaxRow row[2];

    __device__ __forceinline__ void raise_shift(int h, f32 shift) {
      const f32 factor = row[h].rescale(shift);
#pragma unroll
      for (int n = 0; n < WIDE; ++n) sums[n][2 * h] *= factor, sums[n][2 * h + 1] *= factor;
    }
    // Adds sums that have this shift. REQUIRES: the shift is not above the row's.
    __device__ __forceinline__ void add(int h, f32 shift, f32 sum, const f32 (&x)[WIDE][4]) {
      const f32 weight = exp2_approx(shift + row[h].offset());
      row[h].sum = fmaf(weight, sum, row[h].sum);
#pragma unroll
      for (int n = 0; n < WIDE; ++n) {
#pragma unroll
        for (int j = 2 * h; j < 2 * h + 2; ++j) sums[n][j] = fmaf(weight, x[n][j], sums[n][j]);
      }
    }
  };

  // Sums up every `step`-th part from `part` on. `from` is the thread's first element in the first slot, and `rows` the shift of
  // its first row there.
  __device__ static __forceinline__ Slice sum(const f32* from, const f32* rows, int part, int step,
                                              int parts) {
    Slice out;
#pragma unroll 1
    for (; part < parts; part += step * BATCH) {
      Vec<f32, 2> row[BATCH][2];
      Vec<f32, 4> x[BATCH][WIDE];
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        const i64 at = static_cast<i64>(min(part + b * step, parts - 1)) * SLOT;
#pragma unroll
        for (int h = 0; h < 2; ++h) row[b][h] = load<2>(rows + at + h * 16);
#pragma unroll
        for (int n = 0; n < WIDE; ++n) x[b][n] = load<4>(from + at + n * THREADS * 4);
      }
      f32 shift[BATCH][2][2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int b = 0; b < BATCH; ++b) widen(row[b][h], shift[b][h]);
        f32 largest = shift[0][h][0];
#pragma unroll
        for (int b = 1; b < BATCH; ++b) largest = fmaxf(largest, shift[b][h][0]);
        out.raise_shift(h, largest);
      }
#pragma unroll
      for (int b = 0; b < BATCH; ++b) {
        if (part + b * step >= parts) break;
        f32 v[WIDE][4];
#pragma unroll
        for (int n = 0; n < WIDE; ++n) widen(x[b][n], v[n]);
#pragma unroll
        for (int h = 0; h < 2; ++h) out.add(h, shift[b][h][0], shift[b][h][1], v);
      }
    }
    return out;
  }

  // Lane c of four lanes gets word c of each of them.
  __device__ static __forceinline__ Vec<T, 8> gather(const Vec<T, 8>& x) {
    const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x / 2 % 2 != 0;
    u32 low[2], up[2];  // words 0 or 1, and 2 or 3, of an even lane and its neighbour
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 even_word = x.word[2 * i], odd_word = x.word[2 * i + 1];
      const u32 other = __shfl_xor_sync(0xffffffffu, odd ? even_word : odd_word, 1);
      (i == 0 ? low : up)[0] = odd ? other : even_word;
      (i == 0 ? low : up)[1] = odd ? odd_word : other;
    }
    Vec<T, 8> out;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 other = __shfl_xor_sync(0xffffffffu, high ? low[i] : up[i], 2);
      out.word[i] = high ? other : low[i];
      out.word[2 + i] = high ? up[i] : other;
    }
    return out;
  }

  // Merges the block's share of a tile's slices. `row_groups`: groups of 16 rows that the tile has. `exchange` has room for
  // EXCHANGED words of each thread. Calls emit(row, lse) for each row of the tile, and put(row, column, x) for eight
  // columns of it. All threads of both sides call it; BOTH is their barrier.
  // REQUIRES: the writes of all parts are visible.
  template <int BOTH, typename Emit, typename Put>
  __device__ __forceinline__ void merge(const AttentionItem& item, MergeShare share, int row_groups,
                                        f32* exchange, const Emit& emit, const Put& put) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Warps that share a slice. The number follows from the tile alone, and so does the order of summation.
    const int for_all = item.parts / row_groups;
    const int step = item.parts <= 2 * BATCH || for_all < 2 ? 1 : for_all < 4 ? 2 : for_all < 8 ? 4 : WARPS;
    constexpr int CHUNKS = SIDE / 8 / WIDE;
    const int slices = row_groups * 2 * CHUNKS, at_once = WARPS / step;
#pragma unroll 1
    for (int begin = share.first * at_once; begin < slices; begin += share.step * at_once) {
      const int slice = begin + warp / step, chunk = slice % CHUNKS, side = slice / CHUNKS % 2,
                group = slice / CHUNKS / 2, first_row = group * 16 + lane / 4;
      const f32* const first = slot(item.first_slot);
      Slice own;
      if (slice < slices)
        own = sum(first + ((side * 4 + group) * 32 + lane) * 4 + chunk * WIDE * THREADS * 4,
                  first + SUMS + first_row * 2, warp % step, step, item.parts);
      if (step > 1) {
        f32* const place = exchange + threadIdx.x;
#pragma unroll
        for (int i = 0; i < 4 * WIDE; ++i) place[i * THREADS] = own.sums[i / 4][i % 4];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          place[(4 * WIDE + 2 * h) * THREADS] = own.row[h].shift;
          place[(4 * WIDE + 2 * h + 1) * THREADS] = own.row[h].sum;
        }
        sync_threads(BOTH, THREADS);
        if (warp % step == 0 && slice < slices) {
#pragma unroll 1
          for (int i = 1; i < step; ++i) {
            const f32* const other = place + i * 32;
            f32 x[WIDE][4];
#pragma unroll
            for (int j = 0; j < 4 * WIDE; ++j) x[j / 4][j % 4] = other[j * THREADS];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              const f32 shift = other[(4 * WIDE + 2 * h) * THREADS];
              own.raise_shift(h, shift);
              own.add(h, shift, other[(4 * WIDE + 2 * h + 1) * THREADS], x);
            }
          }
        }
        sync_threads(BOTH, THREADS);
      }
      if (warp % step != 0 || slice >= slices) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const f32 factor = own.row[h].inverse();
#pragma unroll
        for (int n = 0; n < WIDE; n += 4) {
          Vec<T, 8> pairs;
#pragma unroll
          for (int i = 0; i < 4; ++i)
            pairs.word[i] = pack<T>(own.sums[n + i][2 * h] * factor, own.sums[n + i][2 * h + 1] * factor);
          put(first_row + 8 * h, side * SIDE + (chunk * WIDE + n + lane % 4) * 8, gather(pairs));
        }
        if (side == 0 && chunk == 0 && lane % 4 == 0) emit(first_row + 8 * h, own.row[h].lse());
      }
    }
  }
};

}  // namespace kiln
