// The sums of a tile on their way through shared memory, to the threads that finish them. Where the blocks of a cluster
// split K, each block finishes some tokens of the tile, and the others send it their sums (sm_90 and newer).
#pragma once
#include "kiln/cluster.cuh"
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/hopper/wgmma.cuh"

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
    const int lane = threadIdx.x % 32, left = group * 64 + wgmma_row();
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

  // Sends block `to` the sums of its tokens from `memory`, where put() wrote all. They come to `received` there, at the
  // place of this block `rank`, and count at `told`. One thread calls it for each other block.
  __device__ static __forceinline__ void send(f32* received, const f32* memory, int rank, int to,
                                              Barrier& told) {
    constexpr int FLOATS = OWN * PITCH;
    cluster_copy(received + rank * FLOATS, to, memory + to * FLOATS, FLOATS * 4, told);
  }

  // The bytes that the other blocks send to one block.
  static constexpr int SENT = BYTES / SPLIT * (SPLIT - 1);

  // Calls f(token, column, x, up) for each 4 neighbouring columns of the tokens of block `rank`, with the sums of all
  // blocks, added in the order of K. The block's own sums are in `memory`, where put() wrote them, the others' in
  // `received`. If GATED, `up` has the sums of the other half of the columns. Token and column count from the start of
  // the tile. THREADS threads share the work.
  template <bool GATED, typename F>
  __device__ static __forceinline__ void each(const f32* memory, const f32* received, int rank, F f) {
    constexpr int WIDE = GATED ? WIDTH / 2 : WIDTH, CHUNKS = WIDE / 4;
#pragma unroll 1
    for (int item = threadIdx.x; item < OWN * CHUNKS; item += THREADS) {
      const int token = item / CHUNKS, column = item % CHUNKS * 4;
      f32 x[4] = {}, up[4] = {};
#pragma unroll
      for (int block = 0; block < SPLIT; ++block) {
        const f32* from = (block == rank ? memory : received) + (block * OWN + token) * PITCH + column;
        add_four(x, from);
        if constexpr (GATED) add_four(up, from + WIDE);
      }
      f(rank * OWN + token, column, x, up);
    }
  }
};

// Returns the largest power of two, up to 64, that divides n, a multiple of 16.
__host__ __device__ constexpr int columns_together(int n) { return n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : 16; }

// Each of four neighbouring lanes gives lane i its v[i]: v[j] is then what lane j gave.
__device__ __forceinline__ void exchange_of_four(f32 (&v)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool high = threadIdx.x & bit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const f32 got = __shfl_xor_sync(~0u, high ? v[i] : v[i + bit], bit);
      (high ? v[i] : v[i + bit]) = got;
    }
  }
}

// The sums of a warpgroup's 64 rows of a tile with RIGHT rows of b, which its threads finish. The products are not
// transposed. Four lanes have two each of 8 neighbouring sums; they exchange them, so that a lane gets all 8.
template <bool GATED, int RIGHT>
struct Columns {
  static constexpr int COLUMNS = GATED ? RIGHT / 2 : RIGHT;

  // Calls f(second, column, x, up) with 8 neighbouring columns of a row of this thread (see wgmma_row()), from a column of
  // the tile on: for each piece that the lane gets of its two rows. If GATED, `up` has the other half of the columns. All
  // threads of the warpgroup call it. If ONCE, the code of f is there once instead of for each 32 columns; the sums then
  // move down, because registers have no index.
  template <bool ONCE, typename F>
  __device__ static __forceinline__ void finish(f32 (&sums)[RIGHT / 2], F f) {
#pragma unroll(ONCE ? 1 : COLUMNS / 32 + 1)
    for (int c = 0; c < COLUMNS; c += 32) {
      const int first = ONCE ? 0 : c / 2, column = c + threadIdx.x % 4 * 8;
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        f32 x[8], up[8];
        take(x, sums, first + 2 * second);
        if constexpr (GATED) take(up, sums, RIGHT / 4 + first + 2 * second);
        if (column < COLUMNS) f(second, column, x, up);
      }
      if constexpr (ONCE) {
#pragma unroll
        for (int i = 0; i + 16 < RIGHT / 2; ++i) sums[i] = sums[i + 16];
      }
    }
  }

 private:
  // This thread's pairs of 4 x 8 columns begin at sums[first]; it gets 8 neighbouring ones.
  __device__ static __forceinline__ void take(f32 (&to)[8], const f32 (&sums)[RIGHT / 2], int first) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      f32 v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = first + i * 4 + odd;
        v[i] = at < RIGHT / 2 ? sums[at] : 0.0f;  // no lane keeps what lies behind the sums
      }
      exchange_of_four(v);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i * 2 + odd] = v[i];
    }
  }
};

}  // namespace kiln
