// The heads of tokens, [tokens, heads, D], shared out among threads: LANES neighbouring threads, a team, have one head of TOKENS neighbouring
// tokens, so that what belongs to the head is read once for these, and each lane has every LANES-th vector of it.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

// REQUIRES: THREADS of a block, fewer than 2^32 teams; a thread without a team has no tokens, and takes part in reductions all the same.
template <int D, int VEC, int LANES, int TOKENS, int THREADS>
struct HeadTeam {
  static constexpr int MINE = static_cast<int>(ceil_div(D / VEC, LANES));  // vectors of a head per lane
  static_assert(D % VEC == 0 && THREADS % LANES == 0, "VEC divides D, LANES the block");

  u32 head;
  i64 first;   // element of its first token's head
  i64 stride;  // elements from a token to the next
  int tokens;

  __device__ __forceinline__ HeadTeam(i64 all_tokens, i32 heads) : stride(static_cast<i64>(heads) * D) {
    const u32 team = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES, group = team / heads;
    head = team - group * heads;
    const i64 token = static_cast<i64>(group) * TOKENS, left = all_tokens - token;
    first = token * stride + static_cast<i64>(head) * D;
    tokens = left < 0 ? 0 : left < TOKENS ? static_cast<int>(left) : TOKENS;
  }
  __device__ static __forceinline__ int at(int i) {
    return (static_cast<int>(threadIdx.x) % LANES + i * LANES) * VEC;
  }  // in a head
  __device__ static __forceinline__ bool has(int i) { return (i + 1) * LANES * VEC <= D || at(i) < D; }

  // This lane's vectors of its head; zeros where it has none.
  template <typename T>
  __device__ __forceinline__ void read(const T* p, Vec<T, VEC> (&out)[TOKENS][MINE]) const {
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        if (t < tokens && has(i)) out[t][i] = load<VEC>(p + first + t * stride + at(i));
      }
    }
  }
  // The same of [heads, D].
  template <typename T>
  __device__ __forceinline__ void read_weights(const T* p, Vec<T, VEC> (&out)[MINE]) const {
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      if (tokens > 0 && has(i)) out[i] = load<VEC>(p + static_cast<i64>(head) * D + at(i));
    }
  }
  template <typename T>
  __device__ __forceinline__ void write(T* p, int t, int i, const f32 (&v)[VEC]) const {
    if (t < tokens && has(i)) store(p + first + t * stride + at(i), narrow<T>(v));
  }
};

}  // namespace kiln
