// StateColumns holds some columns of a state in the registers of COLUMNS / 16 warps, for the recurrences that go in chunks of 16 tokens.
//
// A warp has 16 columns of the state S, transposed: a row of its tile is a column of S. Products have their left operand in
// registers, and their right operand in shared memory. S stays in f32, and is rounded to T for products.
#pragma once
#include "dplr/memory.cuh"
#include "kiln/mma.cuh"
#include "kiln/shared.cuh"

namespace kiln {

template <typename T, int K, int COLUMNS = DPLR_COLUMNS>
class StateColumns {
 public:
  // Loads the warp's columns of a state [K][V], or [V][K] with V_FIRST, in global memory. `state` is its first of
  // COLUMNS columns. Null counts as zeros.
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

  // Stores zeros as the outputs of `count` tokens. `out` is the first of COLUMNS outputs of the first token, and tokens
  // are `stride` elements apart.
  __device__ static __forceinline__ void store_zeros(T* out, i64 stride, int count) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    out += warp * 16 + lane % 2 * 8;
    for (int token = lane / 2; token < count; token += 16) store(out + token * stride, Vec<T, 8>{});
  }

 protected:
  // The thread has in s_[i] the rows row(i) and row(i) + 1 of S, and its columns column(0) and column(1): elements 0 and 1,
  // and 2 and 3.
  __device__ static __forceinline__ int row(int i) { return i * 8 + threadIdx.x % 4 * 2; }
  __device__ static __forceinline__ int column(int h) {
    return threadIdx.x / 32 * 16 + h * 8 + threadIdx.x % 32 / 4;
  }

  // Returns rows 16i to 16i + 15 of S as a left operand.
  __device__ __forceinline__ void pack_state(u32 (&left)[4], int i) const {
#pragma unroll
    for (int r = 0; r < 4; ++r)
      left[r] = pack<T>(s_[2 * i + r / 2][r % 2 * 2], s_[2 * i + r / 2][r % 2 * 2 + 1]);
  }
  // Returns results for the chunk's tokens as a left operand.
  __device__ static __forceinline__ void pack_left(u32 (&left)[4], const f32 (&d)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = pack<T>(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
  }
  // Loads the warp's columns of v as a left operand.
  __device__ static __forceinline__ void load_values(u32 (&left)[4], const T* v) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    load_matrices_transposed(left, shared_address(v) + DplrRows<COLUMNS>::offset(lane / 16 * 8 + lane % 8,
                                                                                 warp * 2 + lane / 8 % 2));
  }
  // d += left square^T.
  __device__ static __forceinline__ void multiply(f32 (&d)[2][4], const u32 (&left)[4], const T* square) {
    const int lane = threadIdx.x % 32;
    u32 right[4];
    load_matrices(right, shared_address(square) + dplr_square(lane / 16 * 8 + lane % 8, lane / 8 % 2));
    mma<T>(d[0], left, right[0], right[1]);
    mma<T>(d[1], left, right[2], right[3]);
  }

  // Stores the outputs of the first `count` tokens; `out` and `stride` are as for store_zeros().
  __device__ static __forceinline__ void store_outputs(const f32 (&o)[2][4], T* out, i64 stride, int count) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, token = lane / 4;
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

  f32 s_[K / 8][4];
};

}  // namespace kiln
