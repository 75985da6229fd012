// DplrWalk takes some columns of a state of RWKV7's recurrence from chunk to chunk, and computes the outputs.
//
// A warp has 16 columns of the state S in registers, transposed: a row of its tile is a column of S. All products have their
// left operand in registers, and their right operand as DplrPreparation left it in shared memory. S stays in f32, and is
// rounded to T for products.
#pragma once
#include "dplr/memory.cuh"
#include "kiln/mma.cuh"
#include "kiln/shared.cuh"

namespace kiln {

template <typename T, int K>
class DplrWalk {
 public:
  // Loads the warp's columns of a state [K][V], or [V][K] with V_FIRST, in global memory. `state` is its first of
  // DPLR_COLUMNS columns. Null counts as zeros.
  template <int V, bool V_FIRST, typename STATE>
  __device__ __forceinline__ void load_from(const STATE* state) {
#pragma unroll
    for (int i = 0; i < K / 8; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        f32(&s)[4] = s_[i];
        if (!state) {
          s[h * 2] = s[h * 2 + 1] = 0.0f;
        } else if constexpr (V_FIRST) {
          f32 x[2];
          widen(load<2>(state + column(h) * K + row(i)), x);
          s[h * 2] = x[0], s[h * 2 + 1] = x[1];
        } else {
          for (int e = 0; e < 2; ++e) {
            f32 x[1];
            widen(load<1>(state + (row(i) + e) * V + column(h)), x);
            s[h * 2 + e] = x[0];
          }
        }
      }
    }
  }
  template <int V, bool V_FIRST, typename STATE>
  __device__ __forceinline__ void store_to(STATE* state) const {
#pragma unroll
    for (int i = 0; i < K / 8; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const f32(&s)[4] = s_[i];
        if constexpr (V_FIRST) {
          store(state + column(h) * K + row(i), narrow<STATE>({s[h * 2], s[h * 2 + 1]}));
        } else {
          for (int e = 0; e < 2; ++e)
            store(state + (row(i) + e) * V + column(h), narrow<STATE>({s[h * 2 + e]}));
        }
      }
    }
  }

  // Takes the state over a chunk, and calls done() once no lane needs the stage. Then stores the outputs of the first
  // `count` tokens. `out` is the first of DPLR_COLUMNS outputs of the first token, and tokens are `stride` elements apart.
  template <typename W, typename Done>
  __device__ __forceinline__ void step(const DplrStage<T, W, K>& stage, T* out, i64 stride, int count,
                                       Done done) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    f32 u[2][4] = {}, o[2][4] = {};
    u32 v[4];
    load_matrices_transposed(
        v, shared_address(stage.v) +
               DplrRows<DPLR_COLUMNS>::offset(lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2));
    multiply(u, v, stage.a_k);
#pragma unroll
    for (int i = 0; i < K / 16; ++i) {  // S^T a and S^T r
      const u32 s[4] = {pack<T>(s_[2 * i][0], s_[2 * i][1]), pack<T>(s_[2 * i][2], s_[2 * i][3]),
                        pack<T>(s_[2 * i + 1][0], s_[2 * i + 1][1]),
                        pack<T>(s_[2 * i + 1][2], s_[2 * i + 1][3])};
      const u32 at = DplrRows<K>::offset(lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2);
      u32 a[4], r[4];
      load_matrices(a, shared_address(stage.a) + at);
      load_matrices(r, shared_address(stage.r) + at);
      mma<T>(u[0], s, a[0], a[1]);
      mma<T>(u[1], s, a[2], a[3]);
      mma<T>(o[0], s, r[0], r[1]);
      mma<T>(o[1], s, r[2], r[3]);
    }
    u32 left[4];
    pack_left(left, u);
    f32 w[2][4] = {};  // u of the chunk
    multiply(w, left, stage.inverse);
    pack_left(left, w);
#pragma unroll
    for (int i = 0; i < K / 16; ++i) {  // S = kept S + b u^T + k v^T
      const u32 at = DplrRows<K>::offset(lane % 16, 2 * i + lane / 16);
      u32 b[4], k[4];
      load_matrices_transposed(b, shared_address(stage.b) + at);
      load_matrices_transposed(k, shared_address(stage.k) + at);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        f32(&s)[4] = s_[2 * i + h];
        const float2 kept = *reinterpret_cast<const float2*>(stage.kept + row(2 * i + h));
        s[0] *= kept.x, s[1] *= kept.y, s[2] *= kept.x, s[3] *= kept.y;
        mma<T>(s, v, k[2 * h], k[2 * h + 1]);
        mma<T>(s, left, b[2 * h], b[2 * h + 1]);
      }
    }
    multiply(o, v, stage.r_k);
    multiply(o, left, stage.r_b);
    done();

    const int token = lane / 4;
    out += token * stride + warp * 16 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Vec<T, 2> pair;
        pair.word[0] = transpose_matrix(pack<T>(o[i][2 * h], o[i][2 * h + 1]));
        if (i * 8 + token < count) store(out + i * 8 * stride + h * 8, pair);
      }
    }
  }

  // Stores zeros as the outputs of `count` tokens.
  __device__ static __forceinline__ void store_zeros(T* out, i64 stride, int count) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    out += warp * 16 + lane % 2 * 8;
    for (int token = lane / 2; token < count; token += 16) store(out + token * stride, Vec<T, 8>{});
  }

 private:
  // The thread has in s_[i] the rows row(i) and row(i) + 1 of S, and its columns column(0) and column(1): elements 0 and 1,
  // and 2 and 3.
  __device__ static __forceinline__ int row(int i) { return i * 8 + threadIdx.x % 4 * 2; }
  __device__ static __forceinline__ int column(int h) {
    return threadIdx.x / 32 * 16 + h * 8 + threadIdx.x % 32 / 4;
  }

  // d += left square^T.
  __device__ static __forceinline__ void multiply(f32 (&d)[2][4], const u32 (&left)[4], const T* square) {
    const int lane = threadIdx.x % 32;
    u32 right[4];
    load_matrices(right, shared_address(square) + dplr_square(lane / 16 * 8 + lane % 8, lane / 8 % 2));
    mma<T>(d[0], left, right[0], right[1]);
    mma<T>(d[1], left, right[2], right[3]);
  }
  __device__ static __forceinline__ void pack_left(u32 (&left)[4], const f32 (&d)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = pack<T>(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
  }

  f32 s_[K / 8][4];
};

}  // namespace kiln
