// StateTile holds columns of a K x V state in the registers of a warp. It has the reductions over K that a
// recurrent step needs.
//
// LANES lanes share COLS neighbouring columns. Of every LANES * RUN rows each lane has RUN neighbouring rows.
// RUN is 4, or 8 where that makes an access to a state in global memory 16 bytes wide.
// Lanes with the same rows are neighbours in the warp. They therefore read a vector over K in shared memory
// in one access for all of them; with a RUN of 4, or with at most 4 LANES, there are no bank conflicts.
#pragma once
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// A state in global memory has elements of type STATE. It is [K][V], or [V][K] with V_FIRST.
template <int K, int V, int LANES, int COLS, typename STATE = f32, bool V_FIRST = false>
struct StateTile {
  static constexpr int RUN = V_FIRST && sizeof(STATE) == 2 && K % 8 == 0 ? 8 : 4;
  static constexpr int RUNS = static_cast<int>(ceil_div(K / RUN, LANES));
  static constexpr int ROWS = RUN * RUNS;       // rows of a lane
  static constexpr int PADDED = ROWS * LANES;   // K rounded up; rows from K on stay zero
  static constexpr int APART = 32 / LANES;      // distance between neighbouring lanes with the same columns
  static constexpr int COLUMNS = APART * COLS;  // columns of a warp
  static_assert(K % 4 == 0 && V % COLS == 0 && COLS <= LANES && LANES <= 32,
                "K must be a multiple of 4, V of COLS, COLS at most LANES, LANES at most 32");

  f32 s[ROWS][COLS];

  // Returns this lane's number among the lanes with the same columns.
  __device__ static __forceinline__ int rank() { return static_cast<int>(threadIdx.x) / APART; }
  // Returns this lane's first column, counted from the warp's first column.
  __device__ static __forceinline__ int column() { return static_cast<int>(threadIdx.x) % APART * COLS; }
  // Returns the row of the state that s[i] holds.
  __device__ static __forceinline__ int row(int i) { return (i / RUN * LANES + rank()) * RUN + i % RUN; }

  __device__ static __forceinline__ bool has(int i) { return PADDED == K || row(i) < K; }

  // Loads this lane's COLS columns, from `column` on, of a state in global memory.
  // They are zero if state is null or column >= V. REQUIRES: state is aligned to 16 bytes, or without V_FIRST
  // to COLS elements.
  __device__ __forceinline__ void load_from(const STATE* state, int column) {
    if constexpr (V_FIRST) {
#pragma unroll
      for (int i = 0; i < ROWS; i += RUN) {
#pragma unroll
        for (int c = 0; c < COLS; ++c) {
          Vec<STATE, RUN> v;
          f32 values[RUN];
          if (state && column < V && has(i)) v = load<RUN>(state + (column + c) * K + row(i));
          widen(v, values);
          for (int j = 0; j < RUN; ++j) s[i + j][c] = values[j];
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        Vec<STATE, COLS> v;
        if (state && column < V && has(i)) v = load<COLS>(state + row(i) * V + column);
        widen(v, s[i]);
      }
    }
  }
  // Stores this lane's columns into a state, from `column` on; it stores nothing if column >= V.
  // REQUIRES: `state` is as in load_from(), but not null.
  __device__ __forceinline__ void store_to(STATE* state, int column) const {
    if constexpr (V_FIRST) {
#pragma unroll
      for (int i = 0; i < ROWS; i += RUN) {
#pragma unroll
        for (int c = 0; c < COLS; ++c) {
          f32 values[RUN];
          for (int j = 0; j < RUN; ++j) values[j] = s[i + j][c];
          if (column < V && has(i)) store(state + (column + c) * K + row(i), narrow<STATE>(values));
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        if (column < V && has(i)) store(state + row(i) * V + column, narrow<STATE>(s[i]));
      }
    }
  }

  // Reads a vector over K at four of this lane's rows: row(first) and the next three.
  // REQUIRES: shared has PADDED elements and is aligned to 16 bytes; first is a multiple of 4.
  __device__ static __forceinline__ void read_four(const f32* shared, int first, f32* out) {
    const float4 v =
        reinterpret_cast<const float4*>(shared)[(first / RUN * LANES + rank()) * (RUN / 4) + first % RUN / 4];
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
  // Reads a vector over K at all of this lane's rows. REQUIRES: `shared` is as in read_four().
  __device__ static __forceinline__ void read(const f32* shared, f32 (&out)[ROWS]) {
#pragma unroll
    for (int i = 0; i < ROWS; i += 4) read_four(shared, i, out + i);
  }

  // Computes x^T S over this lane's rows alone. sum() or sum_of_one() adds the results of the lanes.
  __device__ __forceinline__ void dot(const f32 (&x)[ROWS], f32 (&out)[COLS]) const {
#pragma unroll
    for (int j = 0; j < COLS; ++j) {
      out[j] = x[0] * s[0][j];
#pragma unroll
      for (int i = 1; i < ROWS; ++i) out[j] = fmaf(x[i], s[i][j], out[j]);
    }
  }

  // Sums v over the lanes with the same columns. Each of them receives the sums of all COLS columns.
  __device__ static __forceinline__ void sum(f32 (&v)[COLS]) {
#pragma unroll
    for (int lanes = APART; lanes < 32; lanes *= 2) {
#pragma unroll
      for (int j = 0; j < COLS; ++j) v[j] += shuffle_xor(v[j], lanes);
    }
  }

  // Computes the same sums as sum() in fewer instructions. Each lane receives the sum of only one
  // column: summed_column().
  __device__ static __forceinline__ f32 sum_of_one(const f32 (&v)[COLS]) {
    f32 part[COLS];
#pragma unroll
    for (int j = 0; j < COLS; ++j) part[j] = v[j];
    int lanes = APART;
#pragma unroll
    for (int half = COLS / 2; half > 0; half /= 2, lanes *= 2) {
      // Each lane keeps one half of the columns, and gives the other half away.
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
  // Returns the column whose sum this lane receives from sum_of_one(), counted from the warp's first column.
  __device__ static __forceinline__ int summed_column() {
    int of = 0, lanes = APART;
#pragma unroll
    for (int half = COLS / 2; half > 0; half /= 2, lanes *= 2) of += threadIdx.x & lanes ? half : 0;
    return column() + of;
  }
  // Returns true in the first of the lanes that receive the same sum.
  __device__ static __forceinline__ bool owns_sum() { return rank() < COLS; }
};

}  // namespace kiln
