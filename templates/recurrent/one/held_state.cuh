// HeldState holds a whole K x V state of one head in a block, for a single step.
//
// The state stays packed, as its elements are in global memory, and is widened where it is used. A thread
// therefore needs few registers, and an SM has many bytes of states in flight. The threads of the block read
// neighbouring vectors of 16 bytes, so every access covers whole lines of memory.
//
// Most states lie in registers. A state [V][K] of 16-bit elements lies in shared memory, because its threads also
// need eight elements of each vector over K. With the state in registers, an SM had too few bytes in flight.
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/reduce.cuh"
#include "kiln/shared.cuh"

namespace kiln {

// A state in global memory has elements of type STATE. It is [K][V], or [V][K] with V_FIRST.
// The block has 32 * WARPS threads. If STAGED, it has SMEM bytes of dynamic shared memory.
template <int K, int V, typename STATE, bool V_FIRST, int WARPS>
struct HeldState {
  static constexpr int VEC = 16 / static_cast<int>(sizeof(STATE)), THREADS = 32 * WARPS;
  static constexpr int LANES = (V_FIRST ? K : V) / VEC;  // lanes that share a row in memory
  static constexpr int APART = THREADS / LANES;          // rows from a vector of a thread to its next vector
  static constexpr int VECTORS = K * V / (THREADS * VEC);
  static constexpr int PARTS = V_FIRST ? 1 : WARPS;              // partial results of dots() for a column
  static constexpr bool STAGED = V_FIRST && sizeof(STATE) == 2;  // the state lies in shared memory
  static constexpr int SMEM = STAGED ? K * V * static_cast<int>(sizeof(STATE)) : 0;
  // Vectors that a thread reads from shared memory before it writes any result. The compiler may not move such reads over writes.
  static constexpr int TOGETHER = !STAGED ? 1 : VECTORS % 4 == 0 ? 4 : VECTORS % 2 == 0 ? 2 : 1;
  // Rounds of loops over vectors that are unrolled. In shared memory, more of them spilled registers.
  static constexpr int UNROLLED = STAGED ? 1 : VECTORS;
  static_assert(LANES >= 1 && LANES <= 32 && (LANES & (LANES - 1)) == 0,
                "a row of the state must have 1 to 32 vectors of 16 bytes, a power of two");
  static_assert(VECTORS * THREADS * VEC == K * V && VECTORS % TOGETHER == 0,
                "threads must have the same number of vectors");

  // Partial results of dots(). Their sum over the parts is the result.
  struct Dots {
    alignas(16) f32 x[PARTS][V];
    alignas(16) f32 y[PARTS][V];
    // Returns x^T S and y^T S of a column.
    __device__ __forceinline__ float2 sum(int column) const {
      float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) sum.x += x[part][column], sum.y += y[part][column];
      return sum;
    }
  };

  Vec<STATE, VEC> vector[STAGED ? 1 : VECTORS];  // unused if STAGED

  __device__ static __forceinline__ int thread() { return static_cast<int>(threadIdx.y * 32 + threadIdx.x); }
  // Returns the row in memory of vector i, and the place of this thread's vectors in their rows.
  __device__ static __forceinline__ int row(int i) { return thread() / LANES + i * APART; }
  __device__ static __forceinline__ int place() { return thread() % LANES * VEC; }

  // Begins to load the state; null: zeros. A thread reads back only what it has copied itself.
  // REQUIRES: state is aligned to 16 bytes.
  __device__ __forceinline__ void load_from(const STATE* state) {
    if constexpr (STAGED) {
#pragma unroll
      for (int i = 0; i < VECTORS; ++i) {
        if (state)
          copy_async<VEC>(staged(i), state + (thread() + i * THREADS) * VEC);
        else
          *reinterpret_cast<uint4*>(staged(i)) = make_uint4(0, 0, 0, 0);
      }
      copy_async_commit();
      return;
    }
    if (!state) return;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) vector[i] = load<VEC>(state + (thread() + i * THREADS) * VEC);
  }

  // Waits until the state is there. Call it before dots().
  __device__ __forceinline__ void wait() const {
    if constexpr (STAGED) copy_async_wait<0>();
  }

  // Computes x^T S and y^T S. Another thread may read the results after a barrier.
  // REQUIRES: x and y are in shared memory, aligned to 16 bytes, and have K elements.
  __device__ __forceinline__ void dots(const f32* x, const f32* y, Dots& out) {
    if constexpr (V_FIRST) {
      f32 x_here[VEC], y_here[VEC];
      read_here(x, x_here);
      read_here(y, y_here);
#pragma unroll UNROLLED
      for (int first = 0; first < VECTORS; first += TOGETHER) {
        Vec<STATE, VEC> held[TOGETHER];
        read(held, first);
#pragma unroll
        for (int n = 0; n < TOGETHER; ++n) {
          const int i = first + n;
          f32 s[VEC], dot_x = 0.0f, dot_y = 0.0f;
          widen(held[n], s);
          for (int c = 0; c < VEC; ++c) {
            dot_x = fmaf(s[c], x_here[c], dot_x);
            dot_y = fmaf(s[c], y_here[c], dot_y);
          }
          if constexpr (!STAGED) keep_packed(vector[i]);
          if constexpr (LANES == 1) {
            out.x[0][row(i)] = dot_x, out.y[0][row(i)] = dot_y;
          } else {
            // The lower half of the lanes sums the products with x, the upper half those with y.
            const bool upper = thread() & (LANES / 2);
            const f32 given = shuffle_xor(upper ? dot_x : dot_y, LANES / 2);
            const f32 sum = warp_reduce<LANES / 2>((upper ? dot_y : dot_x) + given, Sum{});
            if (thread() % (LANES / 2) == 0) (upper ? out.y : out.x)[0][row(i)] = sum;
          }
        }
      }
    } else {
      f32 dot_x[VEC] = {}, dot_y[VEC] = {};
#pragma unroll
      for (int i = 0; i < VECTORS; ++i) {
        f32 s[VEC];
        widen(vector[i], s);
        const f32 x_row = x[row(i)], y_row = y[row(i)];
        for (int c = 0; c < VEC; ++c) {
          dot_x[c] = fmaf(s[c], x_row, dot_x[c]);
          dot_y[c] = fmaf(s[c], y_row, dot_y[c]);
        }
        keep_packed(vector[i]);
      }
#pragma unroll
      for (int lanes = LANES; lanes < 32; lanes *= 2) {
        for (int c = 0; c < VEC; ++c) {
          dot_x[c] += shuffle_xor(dot_x[c], lanes);
          dot_y[c] += shuffle_xor(dot_y[c], lanes);
        }
      }
      if (threadIdx.x < LANES) {
        store_shared(out.x[threadIdx.y] + place(), dot_x);
        store_shared(out.y[threadIdx.y] + place(), dot_y);
      }
    }
  }

  // Stores diag(decay) S + sum over n of over_k[n] over_v[n]^T.
  // REQUIRES: all vectors are in shared memory, aligned to 16 bytes; they have K, and for over_v V elements.
  template <int N>
  __device__ __forceinline__ void store_next(STATE* state, const f32* decay, const f32* const (&over_k)[N],
                                             const f32* const (&over_v)[N]) const {
    // One vector of a product has the same elements for all rows of this thread. The other has one for each row.
    f32 here[N][VEC], decay_here[VEC];
#pragma unroll
    for (int n = 0; n < N; ++n) read_here(V_FIRST ? over_k[n] : over_v[n], here[n]);
    if constexpr (V_FIRST) read_here(decay, decay_here);
#pragma unroll UNROLLED
    for (int first = 0; first < VECTORS; first += TOGETHER) {
      Vec<STATE, VEC> held[TOGETHER];
      read(held, first);
#pragma unroll
      for (int v = 0; v < TOGETHER; ++v) {
        const int i = first + v;
        f32 s[VEC];
        widen(held[v], s);
        const f32 decay_row = V_FIRST ? 0.0f : decay[row(i)];
        for (int c = 0; c < VEC; ++c) s[c] *= V_FIRST ? decay_here[c] : decay_row;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const f32 other = (V_FIRST ? over_v[n] : over_k[n])[row(i)];
          for (int c = 0; c < VEC; ++c) s[c] = fmaf(here[n][c], other, s[c]);
        }
        store(state + (thread() + i * THREADS) * VEC, narrow<STATE>(s));
      }
    }
  }

 private:
  // Returns the place of this thread's vector i in shared memory.
  __device__ static __forceinline__ STATE* staged(int i) {
    extern __shared__ __align__(16) u8 held_state[];
    return reinterpret_cast<STATE*>(held_state) + (thread() + i * THREADS) * VEC;
  }
  // Reads this thread's vectors from `first` on.
  __device__ __forceinline__ void read(Vec<STATE, VEC> (&to)[TOGETHER], int first) const {
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
      if constexpr (STAGED)
        to[i] = load_shared<VEC>(staged(first + i));
      else
        to[i] = vector[first + i];
    }
  }

  // Reads the elements of a vector in shared memory that belong to the place of this thread's vectors.
  __device__ static __forceinline__ void read_here(const f32* from, f32 (&to)[VEC]) {
    widen(load_shared<VEC>(from + place()), to);
  }
};

// Returns the second argument of __launch_bounds__. More vectors in the registers of a thread leave an SM fewer warps.
template <int K, int V, typename STATE, bool V_FIRST, int WARPS>
__host__ __device__ constexpr int blocks_that_hold() {
  constexpr int vectors = K * V * static_cast<int>(sizeof(STATE)) / (512 * WARPS);
  constexpr bool staged = V_FIRST && sizeof(STATE) == 2;
  constexpr int warps = staged ? 24 : vectors <= 4 ? 32 : vectors <= 8 ? 24 : 16;
  return larger(1, warps / WARPS);
}

}  // namespace kiln
