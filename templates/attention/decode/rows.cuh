// Computes attention of one query token in a warp. The q heads of a kv head are columns, and kv tokens are
// rows. With t = lane % 4, a lane has columns 2t and 2t + 1 of each 8, both of scores and of outputs. With g
// = lane / 4, it has rows g and g + 8 of each 16.
#pragma once
#include "attention/decode/queries.cuh"
#include "attention/kv_tile.cuh"
#include "attention/logits.cuh"
#include "attention/online_softmax.cuh"

namespace kiln {

// The softmax and the output of a warp's steps, of ROWS tokens each. All lanes call its functions.
template <typename T, typename KV, int D, int DV, int GROUP, int ROWS, bool SOFT_CAP, bool ALIBI>
struct DecodeRows {
  using C = typename ProductType<T, KV>::Type;
  using Logits = LogitTransform<SOFT_CAP, ALIBI>;
  static constexpr int M = ROWS / 16, N = static_cast<int>(ceil_div(GROUP, 8));
  static constexpr bool SCALED = !same<T, C>;

  Logits logits;
  const DecodeColumn* column;  // the lane's first column, in shared memory
  SoftmaxRow softmax[N][2];    // the sums count the lane's own rows only
  f32 scores[M][N][4], output[DV / 16][N][4];

  __device__ __forceinline__ DecodeRows(const Logits& logits, const DecodeColumn* columns, int lane)
      : logits(logits), column(columns + lane % 4 * 2) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int m = 0; m < DV / 16; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0f;
      }
    }
  }

  // Returns the factor that turns a score in the lane's column 8 n + p into a base-2 logit.
  __device__ __forceinline__ f32 scale(int n, int p) const {
    if constexpr (SCALED && Logits::IDENTITY) return logits.scale() * column[8 * n + p].factor;
    return logits.scale();
  }

  // Computes the scores of a step. Both parameters are shared addresses: `keys` is the lane's key_place() in
  // the tile, and `queries` is the place() of its queries.
  template <typename Queries>
  __device__ __forceinline__ void multiply_keys(u32 keys, u32 queries) {
    constexpr int CHAINS = M * N == 1 ? 2 : 1;  // independent chains of dependent products
    f32 odd[CHAINS == 2 ? M : 1][CHAINS == 2 ? N : 1][4] = {};
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] = 0.0f;
      }
    }
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      u32 b[N][4];
#pragma unroll
      for (int n = 0; n < N; ++n) Queries::operands(b[n], queries, n, k);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        u32 a[2][4];
        KvTile<KV, D>::keys(a, keys + m * 16 * KvTile<KV, D>::BYTES, k);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          mma<C>(scores[m][n], a[0], b[n][0], b[n][1]);
          mma<C>(CHAINS == 2 ? odd[0][0] : scores[m][n], a[1], b[n][2], b[n][3]);
        }
      }
    }
    if constexpr (CHAINS == 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[0][0][i] += odd[0][0][i];
    }
  }

  // Turns scores into weights. The step's tokens begin at `at`; tokens from `end` on do not count.
  __device__ __forceinline__ void weigh(i32 at, i32 end, int lane) {
    const int g = lane / 4;
    if constexpr (!Logits::IDENTITY) {
      each([&](int m, int n, int i) {
        const f32 product = SCALED ? scores[m][n][i] * column[8 * n + i % 2].factor : scores[m][n][i];
        const DecodeColumn& of = column[8 * n + i % 2];
        scores[m][n][i] = logits(
            product, ALIBI ? of.slope * static_cast<f32>(at + 16 * m + 8 * (i / 2) + g - of.token) : 0.0f);
      });
    }
    if (at + ROWS > end) {
      each([&](int m, int n, int i) {
        if (at + 16 * m + 8 * (i / 2) + g >= end) scores[m][n][i] = -infinity();
      });
    }

    f32 largest[N][2];
    bool outgrown = false;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        largest[n][p] = fmaxf(scores[0][n][p], scores[0][n][p + 2]);
#pragma unroll
        for (int m = 1; m < M; ++m)
          largest[n][p] = fmaxf(largest[n][p], fmaxf(scores[m][n][p], scores[m][n][p + 2]));
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          largest[n][p] = fmaxf(largest[n][p], shuffle_xor(largest[n][p], lanes));
        largest[n][p] *= scale(n, p);
        outgrown |= softmax[n][p].outgrown(largest[n][p]);
      }
    }
    if (__any_sync(0xffffffffu, outgrown)) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int p = 0; p < 2; ++p) rescale(n, p, softmax[n][p].rescale(largest[n][p]));
      }
    }
    each([&](int m, int n, int i) {
      const f32 weight = softmax[n][i % 2].weight(scores[m][n][i], scale(n, i % 2));
      scores[m][n][i] = weight;
      softmax[n][i % 2].sum += weight;
    });
  }

  // Adds the step's weighted values to the output. `values` is the shared address of the lane's value_place()
  // in the tile.
  __device__ __forceinline__ void multiply_values(u32 values) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      u32 b[N][2];
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const f32(&w)[4] = scores[m][n];
        b[n][0] = transpose_matrix(pack<C>(w[0], w[1])), b[n][1] = transpose_matrix(pack<C>(w[2], w[3]));
      }
#pragma unroll
      for (int k = 0; k < DV / 32; ++k) {
        u32 a[2][4];
        KvTile<KV, DV>::values(a, values + m * 16 * KvTile<KV, DV>::BYTES, k);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          mma<C>(output[2 * k][n], a[0], b[n][0], b[n][1]);
          mma<C>(output[2 * k + 1][n], a[1], b[n][0], b[n][1]);
        }
      }
    }
  }

  __device__ __forceinline__ void rescale(int n, int p, f32 by) {
#pragma unroll
    for (int m = 0; m < DV / 16; ++m) output[m][n][p] *= by, output[m][n][p + 2] *= by;
  }

 private:
  template <typename F>
  __device__ __forceinline__ static void each(F f) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) f(m, n, i);
      }
    }
  }
};

}  // namespace kiln
