// Distributes the heads of q, k and v among the threads of a launch. Team gives a team of threads some heads
// of a token. HeadLayout gives each thread its elements of a head.
#pragma once
#include "attention/rotary.cuh"

namespace kiln {

// A team has one to EACH heads of one token: heads of q, of k or, with WITH_V, of v. The TEAMS teams of a
// block follow each other, first over a token's heads, then over the tokens. If the grid is large enough,
// each team has a single head: few tokens need more threads, not more work for each thread. REQUIRES:
// threadIdx.y is the team's place in its block, and the grid has enough blocks for teams of EACH heads.
template <int EACH, int TEAMS, bool WITH_V>
struct Team {
  u32 first_token;  // first token of the block
  int count;        // number of the block's tokens
  u32 token;        // token of the team; first_token for a team without heads
  bool is_q, is_v;
  int head, heads;  // the team's heads are [head, head + heads)

  __device__ __forceinline__ Team(i32 tokens, i32 q_heads, i32 kv_heads) {
    const bool single = static_cast<u64>(gridDim.x) * TEAMS >=
                        static_cast<u64>(tokens) * (q_heads + kv_heads * (WITH_V ? 2 : 1));
    const int each = single ? 1 : EACH;
    const u32 q_teams = single ? q_heads : (q_heads + EACH - 1) / EACH,
              kv_teams = single ? kv_heads : (kv_heads + EACH - 1) / EACH;
    const u32 teams = q_teams + kv_teams * (WITH_V ? 2 : 1);  // teams of a token
    const u32 begin = blockIdx.x * TEAMS, team = begin + threadIdx.y, end = tokens * teams,
              nth = team % teams;
    first_token = begin / teams;
    count = static_cast<int>((min(begin + TEAMS, end) - 1) / teams - first_token) + 1;
    token = team < end ? team / teams : first_token;
    is_q = nth < q_teams;
    is_v = WITH_V && nth >= q_teams + kv_teams;
    head = static_cast<int>(nth - (is_q ? 0 : is_v ? q_teams + kv_teams : q_teams)) * each;
    heads = team < end ? min(each, (is_q ? q_heads : kv_heads) - head) : 0;
  }
};

// The elements of a head that each of its LANES threads has: two vectors of VEC elements. The first TURNING
// lanes have VEC whole pairs each. The other lanes have elements that are not rotated, and the last of these
// lanes may lack its second vector. A pair is (i, i + ROTARY / 2), or, with INTERLEAVE, two neighbours (2i,
// 2i + 1).
template <int D, int ROTARY, bool INTERLEAVE, int VEC>
struct HeadLayout {
  static constexpr int PAIRS = ROTARY / 2;
  static constexpr int TURNING = PAIRS / VEC;
  static constexpr int STILL = static_cast<int>(ceil_div((D - ROTARY) / VEC, 2));
  static constexpr int LANES = TURNING + STILL;
  static constexpr bool SINGLE = INTERLEAVE && VEC == 1;  // a vector has one element; two vectors are a pair
  static constexpr bool WITHIN = INTERLEAVE && VEC > 1;   // pairs lie within a vector
  static_assert(PAIRS % VEC == 0 && D % VEC == 0 && ROTARY <= D,
                "VEC must divide ROTARY / 2 and D, and ROTARY must be at most D");

  // turns() says whether the lane has pairs. first() and second() are the elements at which its
  // vectors begin.
  __device__ static constexpr bool turns(int lane) { return STILL == 0 || lane < TURNING; }
  __device__ static constexpr int first(int lane) {
    return turns(lane) ? (SINGLE ? 2 * lane : lane * VEC) : ROTARY + (lane - TURNING) * VEC;
  }
  __device__ static constexpr int second(int lane) {
    return first(lane) + (turns(lane) ? (SINGLE ? 1 : PAIRS) : STILL * VEC);
  }
  __device__ static constexpr bool has_second(int lane) {
    return (D - ROTARY) / VEC % 2 == 0 || second(lane) < D;
  }

  // Returns the number of the j-th pair of a turning lane.
  __device__ static constexpr int pair(int lane, int j) {
    if (!WITHIN) return lane * VEC + j;
    return (j < VEC / 2 ? 0 : PAIRS / 2 - VEC / 2) + lane * (VEC / 2) + j;
  }

  // Loads the cosines, or the sines, of a turning lane's pairs from `of_all`, which has one element per pair.
  // REQUIRES: the alignment that load() needs.
  template <typename TABLE>
  __device__ static __forceinline__ void load_pairs(const TABLE* of_all, int lane, f32 (&out)[VEC]) {
    constexpr int RUN = WITHIN ? VEC / 2 : VEC;  // pairs that are neighbours in `of_all`
#pragma unroll
    for (int j = 0; j < VEC; j += RUN) {
      f32 run[RUN];
      widen(load<RUN>(of_all + pair(lane, j)), run);
#pragma unroll
      for (int i = 0; i < RUN; ++i) out[j + i] = run[i];
    }
  }

  // Rotates the pairs of a turning lane, whose vectors are `a` and `b`, by their cosines and sines.
  __device__ static __forceinline__ void rotate_all(f32 (&a)[VEC], f32 (&b)[VEC], const f32 (&cos)[VEC],
                                                    const f32 (&sin)[VEC]) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      if constexpr (WITHIN) {
        f32(&v)[VEC] = j < VEC / 2 ? a : b;
        rotate(v[2 * j % VEC], v[2 * j % VEC + 1], cos[j], sin[j]);
      } else {
        rotate(a[j], b[j], cos[j], sin[j]);
      }
    }
  }
};

}  // namespace kiln
