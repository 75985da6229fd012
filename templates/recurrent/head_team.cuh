// HeadTeam shares out the heads of tokens, [tokens, heads, D], among the threads of a grid.
//
// A team of LANES neighbouring threads has one head of TOKENS neighbouring tokens. The weights of the head
// are therefore read once for these tokens. Each lane has every LANES-th vector of the head.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

// REQUIRES: a block has one dimension of THREADS threads, and the grid has fewer than 2^32 teams. A thread
// without a team has tokens = 0, and still takes part in reductions.
template <int D, int VEC, int LANES, int TOKENS, int THREADS>
struct HeadTeam {
  static constexpr int MINE = static_cast<int>(ceil_div(D / VEC, LANES));  // vectors of a head per lane
  static_assert(D % VEC == 0 && THREADS % LANES == 0, "VEC must divide D, and LANES must divide THREADS");

  u32 head;
  i64 first;   // index of the first element of the team's head in its first token
  i64 stride;  // elements from one token to the next
  int tokens;  // tokens of the team that exist: 0 to TOKENS

  __device__ __forceinline__ HeadTeam(i64 all_tokens, i32 heads) : stride(static_cast<i64>(heads) * D) {
    const u32 team = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES, group = team / heads;
    head = team - group * heads;
    const i64 token = static_cast<i64>(group) * TOKENS, left = all_tokens - token;
    first = token * stride + static_cast<i64>(head) * D;
    tokens = left < 0 ? 0 : left < TOKENS ? static_cast<int>(left) : TOKENS;
  }
  // Returns the index, within the head, of the first element of this lane's vector i.
  __device__ static __forceinline__ int at(int i) {
    return (static_cast<int>(threadIdx.x) % LANES + i * LANES) * VEC;
  }
  __device__ static __forceinline__ bool has(int i) { return (i + 1) * LANES * VEC <= D || at(i) < D; }

  // Reads this lane's vectors of p [tokens, heads, D].
  // A vector that does not exist keeps its value in `out`, which is zero by default.
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
  // Reads this lane's vectors of p [heads, D]. A vector that does not exist keeps its value in `out`.
  template <typename T>
  __device__ __forceinline__ void read_weights(const T* p, Vec<T, VEC> (&out)[MINE]) const {
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      if (tokens > 0 && has(i)) out[i] = load<VEC>(p + static_cast<i64>(head) * D + at(i));
    }
  }
  // Rounds v to T and stores it as vector i of the team's token t, if that vector exists.
  template <typename T>
  __device__ __forceinline__ void write(T* p, int t, int i, const f32 (&v)[VEC]) const {
    if (t < tokens && has(i)) store(p + first + t * stride + at(i), narrow<T>(v));
  }
};

}  // namespace kiln
