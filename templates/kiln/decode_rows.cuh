// One token's attention as a warp computes it: the q heads of a kv head are columns, kv tokens are rows, and
// a lane has two columns of each 8, the same ones of scores and outputs. With g = lane / 4 and t = lane % 4:
// columns 2t and 2t + 1.
#pragma once
#include "kiln/kv_tile.cuh"
#include "kiln/logits.cuh"
#include "kiln/online_softmax.cuh"

namespace kiln {

// The queries of an item in shared memory, a row for each column; columns from GROUP on are zeros. For fp8
// keys a row is in KvTile's order, and a bf16 one is divided by a power of two, its factor, so that f16 holds
// it.
template <typename T, typename KV, int D, int GROUP, int WARPS>
struct DecodeQueries {
  using C = typename ProductType<T, KV>::Type;
  using Tile = Swizzled<2 * D>;
  static constexpr int COLUMNS = static_cast<int>(ceil_div(GROUP, 8)) * 8;
  static constexpr bool SCALED = !same<T, C>;
  alignas(128) u8 rows[COLUMNS * 2 * D];
  f32 factor[COLUMNS];

  // By all warps; others see it behind a barrier.
  __device__ __forceinline__ void load_from(const T* q, i64 stride_head, int warp, int lane) {
    constexpr int EACH = static_cast<int>(ceil_div(COLUMNS, WARPS));
    Vec<T, 8> x[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int row = warp + i * WARPS;
      if (row < GROUP && lane < D / 8) x[i] = load<8>(q + row * stride_head + lane * 8);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int row = warp + i * WARPS;
      if (row >= COLUMNS) break;
      uint4 bits{x[i].word[0], x[i].word[1], x[i].word[2], x[i].word[3]};
      if constexpr (SCALED) {
        f32 v[8], largest = 0.0f;
        widen(x[i], v);
        for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf(v[j]));
        const u32 exponent = min(max(__float_as_uint(warp_reduce<32>(largest, Max{})) >> 23, 27u), 227u);
        const f32 inverse = __uint_as_float((254 - exponent) << 23);
        if (lane == 0) factor[row] = __uint_as_float(exponent << 23);
        bits = {pack<C>(v[0] * inverse, v[1] * inverse), pack<C>(v[2] * inverse, v[3] * inverse), pack<C>(v[4] * inverse, v[5] * inverse),
                pack<C>(v[6] * inverse, v[7] * inverse)};
      }
      if (lane >= D / 8) continue;
      if constexpr (KvTile<KV, D>::BYTE) {  // of four neighbours, a lane's elements of k, the first two are
                                            // in the first chunk of 16 and the others in the second
        const int chunk = lane / 2 * 2, half = lane % 2 * 8;
        *reinterpret_cast<uint2*>(rows + Tile::offset(row, chunk) + half) = {bits.x, bits.z};
        *reinterpret_cast<uint2*>(rows + Tile::offset(row, chunk + 1) + half) = {bits.y, bits.w};
      } else {
        *reinterpret_cast<uint4*>(rows + Tile::offset(row, lane)) = bits;
      }
    }
  }

  // A lane's place in 8 rows, for operands() at element 0.
  __device__ __forceinline__ u32 place(int lane) const { return shared_address(rows) + Tile::offset(lane % 8, lane / 8); }
  // Elements [32 n, 32 n + 32) of 8 columns as two operands [element][column].
  __device__ static __forceinline__ void operands(u32 (&b)[4], u32 place, int columns, int n) {
    load_matrices(b, Tile::further(place + columns * 8 * 2 * D, 4 * n));
  }
};

// Softmax and output of the steps of a warp, of ROWS tokens each.
template <typename T, typename KV, int D, int DV, int GROUP, int ROWS, bool SOFT_CAP, bool ALIBI>
struct DecodeRows {
  using C = typename ProductType<T, KV>::Type;
  using Logits = LogitTransform<SOFT_CAP, ALIBI>;
  static constexpr int M = ROWS / 16, N = static_cast<int>(ceil_div(GROUP, 8));
  static constexpr bool SCALED = !same<T, C>;

  Logits logits;
  i32 own;                           // the token's position, for ALiBi
  f32 slope[ALIBI ? N : 1][2] = {};  // times the logits' unit
  f32 factor[SCALED ? N : 1][2];     // of q
  SoftmaxRow softmax[N][2];          // sums: of this lane's rows
  f32 scores[M][N][4], output[DV / 16][N][4];

  __device__ __forceinline__ DecodeRows(const Logits& logits, i32 own, const f32* q_factor, const f32* slopes, int lane) : logits(logits), own(own) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const int column = 8 * n + lane % 4 * 2 + p;
        if constexpr (ALIBI) slope[n][p] = column < GROUP ? load_one(slopes + column) * logits.unit : 0.0f;
        if constexpr (SCALED) factor[n][p] = q_factor[column];
      }
#pragma unroll
      for (int m = 0; m < DV / 16; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0f;
      }
    }
  }

  // Makes base-2 logits of scores.
  __device__ __forceinline__ f32 scale(int n, int p) const {
    if constexpr (SCALED && Logits::IDENTITY) return logits.scale() * factor[n][p];
    return logits.scale();
  }

  template <typename Queries>
  __device__ __forceinline__ void multiply_keys(u32 keys, u32 queries) {
    constexpr int CHAINS = M * N == 1 ? 2 : 1;  // a product waits for the one before it in its chain
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

  // Scores become weights. The step's tokens begin at `at`; from `end` on they do not count.
  __device__ __forceinline__ void weigh(i32 at, i32 end, int lane) {
    const int g = lane / 4;
    if constexpr (!Logits::IDENTITY) {
      each([&](int m, int n, int i) {
        const f32 product = SCALED ? scores[m][n][i] * factor[SCALED ? n : 0][i % 2] : scores[m][n][i];
        const f32 distance = static_cast<f32>(at + 16 * m + 8 * (i / 2) + g - own);
        scores[m][n][i] = logits(product, ALIBI ? slope[ALIBI ? n : 0][i % 2] * distance : 0.0f);
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
        for (int m = 1; m < M; ++m) largest[n][p] = fmaxf(largest[n][p], fmaxf(scores[m][n][p], scores[m][n][p + 2]));
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) largest[n][p] = fmaxf(largest[n][p], shuffle_xor(largest[n][p], lanes));
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

// What the warps of a block have seen of an item, joined in shared memory: outputs are divided by the sums,
// lse is base 2.
template <int DV, int GROUP, int WARPS>
struct DecodeJoin {
  static constexpr int COLUMNS = static_cast<int>(ceil_div(GROUP, 8)) * 8,
                       STRIDE = DV + 4;            // the 4: columns 8 banks apart
  f32 shift[WARPS][COLUMNS], sum[WARPS][COLUMNS];  // shift: base 2
  alignas(16) f32 output[GROUP][STRIDE];

  __device__ __forceinline__ f32 largest(int column) const {
    f32 out = shift[0][column];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) out = fmaxf(out, shift[w][column]);
    return out;
  }
  __device__ __forceinline__ f32 total(int column, f32 largest) const {
    f32 out = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) out += sum[w][column] * exp2_approx(shift[w][column] - finite_shift(largest));
    return out;
  }
  __device__ __forceinline__ f32 lse(int column) const {
    const f32 l = largest(column);
    return finite_shift(l) + log2_approx(total(column, l));
  }

  // By all warps: barriers in front of the result and behind it are within. The warps add one after the
  // other, so that sums have one order.
  template <typename Rows, typename Tile>
  __device__ __forceinline__ void join(Rows& rows, Tile, f32 v_scale, int warp, int lane) {
#pragma unroll
    for (int n = 0; n < Rows::N; ++n) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const f32 own = warp_sum_of_rows(rows.softmax[n][p].sum);
        const int column = 8 * n + 2 * lane + p;
        if (lane < 4) shift[warp][column] = rows.softmax[n][p].shift, sum[warp][column] = own;
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < Rows::N; ++n) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const int column = 8 * n + lane % 4 * 2 + p;
        const f32 l = largest(column), all = total(column, l);
        rows.rescale(n, p, all > 0.0f ? exp2_approx(shift[warp][column] - finite_shift(l)) * v_scale * reciprocal_approx(all) : 0.0f);
      }
    }
#pragma unroll 1
    for (int w = 0; w < WARPS; ++w) {
      if (w == warp) {
#pragma unroll
        for (int n = 0; n < Rows::N; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int column = 8 * n + lane % 4 * 2 + i % 2;
            if (column >= GROUP) continue;
#pragma unroll
            for (int m = 0; m < DV / 16; ++m) {
              f32& to = output[column][Tile::value_element(m, lane / 4 + i / 2 * 8)];
              to = (w == 0 ? 0.0f : to) + rows.output[m][n][i];
            }
          }
        }
      }
      __syncthreads();
    }
  }

 private:
  __device__ static __forceinline__ f32 warp_sum_of_rows(f32 v) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) v += shuffle_xor(v, lanes);
    return v;
  }
};

}  // namespace kiln
