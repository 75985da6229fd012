// The sums of a tile on their way through shared memory, to the threads that finish them. Where the blocks of a cluster
// split K, each block finishes some tokens of the tile, and the others send it their sums (sm_90 and newer).
#pragma once
#include "kiln/cluster.cuh"
#include "kiln/hopper/warpgroup.cuh"

namespace kiln {

// Adds four neighbouring floats of shared memory.
__device__ __forceinline__ void add_four(f32 (&to)[4], const f32* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] += v.x, to[1] += v.y, to[2] += v.z, to[3] += v.w;
}

// The sums lie in rows of tokens. `Shape` is a GemmShape; with its `swap` the products are transposed on the way.
template <typename Shape>
struct Sums {
  static constexpr bool SWAP = Shape::swap;
  static constexpr int LEFT = Shape::left, RIGHT = Shape::right, SPLIT = Shape::split,
                       THREADS = 128 * Shape::warpgroups;
  static constexpr int TOKENS = SWAP ? RIGHT : LEFT, WIDTH = SWAP ? LEFT : RIGHT, OWN = TOKENS / SPLIT;
  static constexpr int PITCH = WIDTH + (SWAP ? 4 : 8),
                       BYTES = TOKENS * PITCH * 4;  // writes meet no bank twice

  // Writes this thread's sums of the 64 left rows of its warpgroup.
  __device__ static __forceinline__ void put(f32* memory, const f32 (&sums)[RIGHT / 2], int group) {
    const int lane = threadIdx.x % 32, left = group * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < RIGHT / 2; i += 2) {
      const int row = left + i % 4 / 2 * 8, right = i / 4 * 8 + lane % 4 * 2;
      if constexpr (SWAP) {
        memory[right * PITCH + row] = sums[i];
        memory[(right + 1) * PITCH + row] = sums[i + 1];
      } else {
        *reinterpret_cast<float2*>(memory + row * PITCH + right) = make_float2(sums[i], sums[i + 1]);
      }
    }
  }

  // Sends block `to` the sums of its tokens from `memory`, where put() wrote all. They come to `received` there, behind
  // the sums that the blocks before this block `rank` send, and count at `told`. One thread calls it for each block.
  __device__ static __forceinline__ void send(f32* received, const f32* memory, int rank, int to,
                                              Barrier& told) {
    constexpr int FLOATS = OWN * PITCH;
    cluster_copy(received + rank * FLOATS, to, memory + to * FLOATS, FLOATS * 4, told);
  }

  // Calls f(token, column, x, up) for each 4 neighbouring columns of the tokens of block `rank`, with the sums of all
  // blocks, added in the order of K. If GATED, `up` has the sums of the other half of the columns. Token and column
  // count from the start of the tile. THREADS threads share the work.
  template <bool GATED, typename F>
  __device__ static __forceinline__ void each(const f32* received, int rank, F f) {
    constexpr int WIDE = GATED ? WIDTH / 2 : WIDTH, CHUNKS = WIDE / 4;
#pragma unroll 1
    for (int item = threadIdx.x; item < OWN * CHUNKS; item += THREADS) {
      const int token = item / CHUNKS, column = item % CHUNKS * 4;
      f32 x[4] = {}, up[4] = {};
#pragma unroll
      for (int block = 0; block < SPLIT; ++block) {
        const f32* from = received + (block * OWN + token) * PITCH + column;
        add_four(x, from);
        if constexpr (GATED) add_four(up, from + WIDE);
      }
      f(rank * OWN + token, column, x, up);
    }
  }
};

// Returns the largest power of two, up to 64, that divides n.
__host__ __device__ constexpr int columns_together(int n) {
  return n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : n % 16 == 0 ? 16 : 8;
}

// Floats of shared memory for a warpgroup that finishes Columns.
inline constexpr int COLUMNS_FLOATS = 64 * 72;

// The sums of a warpgroup's 64 rows of a tile with RIGHT rows of b, on their way to the same warpgroup. Some columns go at a
// time: up to 64, or if GATED up to 32 and as many of the other half. The products are not transposed.
template <bool GATED, int RIGHT>
struct Columns {
  static constexpr int COLUMNS = GATED ? RIGHT / 2 : RIGHT, WIDE = columns_together(RIGHT) / (GATED ? 2 : 1);
  static constexpr int PITCH = (GATED ? 2 * WIDE : WIDE) + 8;

  // Calls f(token, column, x, up) for each 4 neighbouring columns of the tile, of which this thread has `sums`. Token and column count from the start of the tile. The warpgroup's 128 threads share the work. If ONCE, the
  // code of f is there once instead of for each WIDE columns; the sums then move down, because registers have no index.
  template <bool ONCE, typename F>
  __device__ static __forceinline__ void finish(f32* memory, f32 (&sums)[RIGHT / 2], int group, F f) {
#pragma unroll(ONCE ? 1 : COLUMNS / WIDE)
    for (int c = 0; c < COLUMNS; c += WIDE) {
      const int first = ONCE ? 0 : c / 2;
      sync_threads(group + 1, 128);  // the columns before have been read
      put(memory, sums + first, sums + RIGHT / 4 + first);
      sync_threads(group + 1, 128);
      each(memory,
           [&](int token, int column, f32(&x)[4], f32(&up)[4]) { f(token + group * 64, column + c, x, up); });
      if constexpr (ONCE) {
#pragma unroll
        for (int i = 0; i + WIDE / 2 < RIGHT / 2; ++i) sums[i] = sums[i + WIDE / 2];
      }
    }
  }

 private:
  // Writes this thread's sums, of which it has WIDE / 2.
  __device__ static __forceinline__ void put(f32* memory, const f32* sums, const f32* up) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < WIDE / 2; i += 2) {
      f32* to = memory + (row + i % 4 / 2 * 8) * PITCH + i / 4 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums[i], sums[i + 1]);
      if constexpr (GATED) *reinterpret_cast<float2*>(to + WIDE) = make_float2(up[i], up[i + 1]);
    }
  }

  // Calls f(token, column, x, up) for each 4 neighbouring columns. The loop stays one: unrolled, it would be most of a compile.
  template <typename F>
  __device__ static __forceinline__ void each(const f32* memory, F f) {
#pragma unroll 1
    for (int item = threadIdx.x % 128; item < 64 * WIDE / 4; item += 128) {
      const int token = item / (WIDE / 4), column = item % (WIDE / 4) * 4;
      const f32* from = memory + token * PITCH + column;
      f32 x[4] = {}, up[4] = {};
      add_four(x, from);
      if constexpr (GATED) add_four(up, from + WIDE);
      f(token, column, x, up);
    }
  }
};

}  // namespace kiln
