// A tile of attention in the registers of a warpgroup, whose products run on wgmma (sm_90a). The warpgroup has 64 packed
// rows, and each of its warps has 16 of them.
//
// q, k and v lie in shared memory in panels: rows of 128 bytes with a swizzle of 128, as TMA writes them.
// Weights go from the first product to the second one in registers. A product is asynchronous: each multiply function
// begins one group of wgmma, and the caller waits for it.
#pragma once
#include "attention/online_softmax.cuh"
#include "attention/prefill/tile.cuh"
#include "attention/work_list.cuh"
#include "kiln/copy_async.cuh"
#include "kiln/hopper/pipeline.cuh"
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/hopper/wgmma.cuh"

namespace kiln {

// The elements of a row of a panel, and the panels that rows of `elements` take.
template <typename T>
inline constexpr int PANEL_ROW = 128 / static_cast<int>(sizeof(T));
template <typename T>
__host__ __device__ constexpr int panels_of(int elements) {
  return (elements + PANEL_ROW<T> - 1) / PANEL_ROW<T>;
}

// A panel of ROWS rows of 128 bytes. Its address is a multiple of 1024 bytes.
template <typename T, int ROWS>
using Panel = T[ROWS * PANEL_ROW<T>];

// Begins to copy the warp's 16 rows of q, of D elements each, to the panels of its warpgroup. Elements of the last panel
// after the first D are not written. `q` is the first row of the request and kv head,
// which has `rows` packed rows. The warp's rows begin at `first_row`; rows from `rows` on become zeros. Strides count
// elements.
template <int GROUP, int D, typename T, int PANELS>
__device__ __forceinline__ void copy_rows_to_panels(Panel<T, 64> (&panels)[PANELS], const T* q, i64 stride,
                                                    i64 stride_head, i32 first_row, i32 rows) {
  constexpr int CHUNK = 16 / sizeof(T), ROW = PANEL_ROW<T>;
  // A thread has fewer registers with e4m3. Without fresh(), values derived from its index would stay in some between calls.
  const u32 thread = sizeof(T) == 1 ? fresh(threadIdx.x) : threadIdx.x;
  const int lane = thread % 32, warp = thread / 32 % 4, line = lane / 8, chunk = lane % 8;
#pragma unroll
  for (int r = 0; r < 16; r += 4) {
    const int at = warp * 16 + r + line;
    const PackedRow<GROUP> row(min(first_row + r + line, rows - 1));
    const T* const from = q + row.token * stride + row.head * stride_head + chunk * CHUNK;
    const u32 to = shared_address(panels) + at * 128 + (chunk ^ at % 8) * 16;
#pragma unroll
    for (int i = 0; i < panels_of<T>(D); ++i) {
      if (D - i * ROW >= ROW || chunk < (D - i * ROW) / CHUNK)
        copy_async_or_zero(to + i * 64 * 128, from + i * ROW, first_row + r + line < rows);
    }
  }
}

// q and k have elements of KV. The weights and v have elements of T.
template <typename T, int D, int DV, int TILE_KV, typename KV = T>
struct WgmmaTile {
  static constexpr int N = TILE_KV / 8, STEPS = TILE_KV / 16;
  static constexpr int K_PANELS = panels_of<KV>(D), V_PANELS = panels_of<T>(DV);
  static constexpr int COLUMNS = V_PANELS * 64;  // columns of v, with those after DV, which are 0
  // Columns of v in an instruction. With e4m3 a block has 512 threads, and no instruction may name the registers of 256 columns.
  static constexpr int WIDTH = !same<T, KV> && COLUMNS > 192 ? COLUMNS / 2 : COLUMNS;
  static_assert(D * sizeof(KV) % 32 == 0 && TILE_KV % 16 == 0,
                "a row of k must be a multiple of 32 bytes, and TILE_KV of 16");

  // A thread has elements of rows g and g + 8 of its warp, as kiln/hopper/wgmma.cuh lays them out, with g = lane / 4. These
  // are its rows h = 0 and 1.
  f32 sums[COLUMNS / 2];  // weighted sums of v, relative to the rows' shifts
  f32 s[TILE_KV / 2];     // products q k^T of a kv block; then its logits; then its weights
  u32 p[STEPS][4];        // the weights, rounded to T: the left operand of the product with v
  SoftmaxRow row[2];      // `sum` counts the thread's own columns only
  f32 largest[2];         // the largest logit of the kv block

  __device__ __forceinline__ void clear() {
    row[0] = row[1] = SoftmaxRow{};
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) sums[i] = 0.0f;
  }

  // Begins s = q k^T.
  template <int PANELS>
  __device__ __forceinline__ void multiply_k(const Panel<KV, 64> (&q)[PANELS],
                                             const Panel<KV, TILE_KV> (&k)[K_PANELS]) {
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < K_PANELS; ++i) {
      const u64 left = wgmma_operand<128>(q[i]), right = wgmma_operand<128>(k[i]);
#pragma unroll
      for (int bytes = 0; bytes < 128 && i * 128 + bytes < D * sizeof(KV); bytes += 32)
        wgmma<KV, TILE_KV>(s, left + wgmma_along(bytes), right + wgmma_along(bytes), i > 0 || bytes > 0);
    }
    wgmma_commit();
  }

  // Begins sums += p v. Changes of p and of sums before the call are complete when the products begin.
  __device__ __forceinline__ void multiply_v(const Panel<T, TILE_KV> (&v)[V_PANELS]) {
    wgmma_registers(sums);
    wgmma_registers(p);
    wgmma_begin();
    const u64 right = wgmma_operand_along_n(v, TILE_KV * 128);
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
#pragma unroll
      for (int c = 0; c < COLUMNS; c += WIDTH)
        wgmma<T, WIDTH>(reinterpret_cast<f32(&)[WIDTH / 2]>(sums[c / 2]), p[i],
                        right + wgmma_along((c / 64 * TILE_KV + i * 16) * 128), true);
    }
    wgmma_commit();
  }

  // Replaces each logit that its row does not see by -infinity. visible(h) returns the tokens that row h sees, counted from
  // the kv block's first token.
  template <bool FROM_THE_LEFT, typename F>
  __device__ __forceinline__ void mask(const F& visible) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Visible sees = visible(h);
      const i32 column = threadIdx.x % 4 * 2, first = sees.first - column, last = sees.last - column;
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          f32& x = s[4 * n + 2 * h + j];
          x = (!FROM_THE_LEFT || n * 8 + j >= first) && n * 8 + j <= last ? x : -infinity();
        }
      }
    }
  }

  // Finds the largest logits of the kv block. Returns whether a row of the warp has outgrown its shift. A logit is s *
  // scale.
  __device__ __forceinline__ bool outgrown(f32 scale) {
    bool any = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      f32 x = fmaxf(s[2 * h], s[2 * h + 1]);
#pragma unroll
      for (int n = 1; n < N; ++n) x = fmaxf(x, fmaxf(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]));
      x = fmaxf(x, shuffle_xor(x, 1));
      largest[h] = fmaxf(x, shuffle_xor(x, 2)) * scale;
      any |= row[h].outgrown(largest[h]);
    }
    return __any_sync(0xffffffffu, any) != 0;
  }

  // Raises the shifts to the largest logits. Afterwards rescale_sums() multiplies the weighted sums by `factor`.
  __device__ __forceinline__ void raise_shifts(f32 (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) factor[h] = row[h].rescale(largest[h]);
  }
  __device__ __forceinline__ void rescale_sums(const f32 (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) sums[i] *= factor[i % 4 / 2];
  }

  // Turns the logits into weights, in place.
  __device__ __forceinline__ void weigh(f32 scale) {
#pragma unroll
    for (int i = 0; i < TILE_KV / 2; ++i) {
      SoftmaxRow& own = row[i % 4 / 2];
      s[i] = own.weight(s[i], scale);
      own.sum += s[i];
    }
  }
  // Rounds the weights to p. No product that reads p may be under way.
  __device__ __forceinline__ void pack_weights() {
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) p[i][j] = pack<T>(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
    }
  }
};

}  // namespace kiln
