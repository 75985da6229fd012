// Columns of a K x V state in the registers of a warp, and the reductions over K that a recurrent step needs.
//
// LANES lanes share COLS neighbouring columns: of every LANES * 4 rows each has four neighbours. Lanes of the same rows are neighbours in the warp,
// so that a vector over K in shared memory is read without bank conflicts, and once for all of them.
#pragma once
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

template <int K, int V, int LANES, int COLS>
struct StateTile {
  static constexpr int FOURS = static_cast<int>(ceil_div(K / 4, LANES));
  static constexpr int ROWS = 4 * FOURS;        // of a lane
  static constexpr int PADDED = ROWS * LANES;   // K, with rows that stay zero
  static constexpr int APART = 32 / LANES;      // lanes from one that has the same columns to the next
  static constexpr int COLUMNS = APART * COLS;  // of a warp
  static_assert(K % 4 == 0 && V % COLS == 0 && COLS <= LANES && LANES <= 32,
                "K is a multiple of 4, V of COLS");

  f32 s[ROWS][COLS];

  __device__ static __forceinline__ int rank() {
    return static_cast<int>(threadIdx.x) / APART;
  }  // among the lanes of the same columns
  __device__ static __forceinline__ int column() {
    return static_cast<int>(threadIdx.x) % APART * COLS;
  }  // its first, among those of the warp
  __device__ static __forceinline__ int row(int i) { return (i / 4 * LANES + rank()) * 4 + i % 4; }

  __device__ static __forceinline__ bool has(int i) { return PADDED == K || row(i) < K; }

  // The columns from `column` on of a state [K][V]; zeros where there is none: state is null, or the column is not below V.
  __device__ __forceinline__ void load_from(const f32* state, int column) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      Vec<f32, COLS> v;
      if (state && column < V && has(i)) v = load<COLS>(state + row(i) * V + column);
      widen(v, s[i]);
    }
  }
  __device__ __forceinline__ void store_to(f32* state, int column) const {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if (column < V && has(i)) store(state + row(i) * V + column, narrow<f32>(s[i]));
    }
  }

  // This lane's rows of a vector over K (PADDED elements of shared memory); four from `first` on.
  __device__ static __forceinline__ void read_four(const f32* shared, int first, f32* out) {
    const float4 v = reinterpret_cast<const float4*>(shared)[first / 4 * LANES + rank()];
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
  __device__ static __forceinline__ void read(const f32* shared, f32 (&out)[ROWS]) {
#pragma unroll
    for (int i = 0; i < ROWS; i += 4) read_four(shared, i, out + i);
  }

  // x^T S over this lane's rows alone.
  __device__ __forceinline__ void dot(const f32 (&x)[ROWS], f32 (&out)[COLS]) const {
#pragma unroll
    for (int j = 0; j < COLS; ++j) {
      out[j] = x[0] * s[0][j];
#pragma unroll
      for (int i = 1; i < ROWS; ++i) out[j] = fmaf(x[i], s[i][j], out[j]);
    }
  }

  // Sums over the lanes of the same columns; all receive all.
  __device__ static __forceinline__ void sum(f32 (&v)[COLS]) {
#pragma unroll
    for (int lanes = APART; lanes < 32; lanes *= 2) {
#pragma unroll
      for (int j = 0; j < COLS; ++j) v[j] += shuffle_xor(v[j], lanes);
    }
  }

  // The same sums in fewer instructions: each lane receives that of one column, the one that summed_column() names.
  __device__ static __forceinline__ f32 sum_of_one(const f32 (&v)[COLS]) {
    f32 part[COLS];
#pragma unroll
    for (int j = 0; j < COLS; ++j) part[j] = v[j];
    int lanes = APART;
#pragma unroll
    for (int half = COLS / 2; half > 0;
         half /= 2, lanes *= 2) {  // keep one half of the columns, give the other away
      const bool upper = threadIdx.x & lanes;
#pragma unroll
      for (int j = 0; j < half; ++j) {
        const f32 given = upper ? part[j] : part[j + half];
        part[j] = (upper ? part[j + half] : part[j]) + shuffle_xor(given, lanes);
      }
    }
#pragma unroll
    for (; lanes < 32; lanes *= 2) part[0] += shuffle_xor(part[0], lanes);
    return part[0];
  }
  __device__ static __forceinline__ int summed_column() {  // among those of the warp
    int of = 0, lanes = APART;
#pragma unroll
    for (int half = COLS / 2; half > 0; half /= 2, lanes *= 2) of += threadIdx.x & lanes ? half : 0;
    return column() + of;
  }
  __device__ static __forceinline__ bool owns_sum() {
    return rank() < COLS;
  }  // the first of several lanes that have the same sum
};

}  // namespace kiln
