// The gate of a mixture of experts: a warp finds for each of its tokens the K experts with the largest scores,
// and their weights.
//
// A team of LANES lanes has a token. Each lane holds PER neighbouring experts of one group as ordered keys,
// and sorts its keys once. The largest key that is not yet picked is the lane's head. A pick has three steps:
// - The team finds its largest head.
// - The lowest lane with that head has the pick, so that the lower id wins a tie.
// - That lane moves on to its next key.
// At the end the experts of all picked keys are looked up at once.
#pragma once
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"
#include "moe/score.cuh"
#include "moe/select.cuh"

namespace kiln {

// Returns the number of places for experts in a lane. `lanes` lanes share `size` experts in whole vectors.
__host__ __device__ constexpr int experts_of_lane(int size, int lanes, int vec) {
  return vec * static_cast<int>(ceil_div(size, lanes * vec));
}

template <typename T, int E, int K, Score SCORE, bool BIAS, bool RENORM, int GROUPS, int TOPK_GROUPS, int VEC,
          int LANES>
struct Gate {
  static constexpr int TEAMS = 32 / LANES;                    // tokens of a warp
  static constexpr int SIZE = E / GROUPS;                     // experts of a group
  static constexpr int LANES_OF = LANES / next_pow2(GROUPS);  // lanes of a group
  static constexpr int PER = experts_of_lane(SIZE, LANES_OF, VEC);
  static constexpr int WIDE = next_pow2(PER);
  static constexpr bool FULL = PER * LANES == E;  // no lane has a place without an expert
  // Without SUM_ALL, the scores of the chosen experts suffice.
  static constexpr bool SUM_ALL = SCORE == Score::softmax && (BIAS || !RENORM);
  static constexpr u32 TEAM = LANES == 32 ? 0xffffffffu : (1u << (LANES % 32)) - 1;

  struct Pick {
    u32 key, lane;
  };
  // Shared memory of a warp. The keys of each lane: `keys` in the order of ids, `queue` sorted.
  struct Memory {
    u32 keys[WIDE][32], queue[WIDE][32];
    Pick picks[32];
  };

  // Chooses the experts of the token with the logits `row`. Calls loaded() after the loads have begun, and
  // store(slot, expert, weight) in the lane of each slot. REQUIRES: all 32 lanes of the warp call it, each
  // with the row of its team's token; no other warp uses `memory`.
  template <typename Loaded, typename Store>
  __device__ __forceinline__ static void choose(Memory& memory, int lane, const T* row, const f32* bias,
                                                const Loaded& loaded, const Store& store) {
    const int member = LANES == 32 ? lane : lane % LANES, team = LANES == 32 ? 0 : lane - member;
    const auto first_expert = [&](int of) { return of / LANES_OF * SIZE + of % LANES_OF * PER; };
    const int group = member / LANES_OF, first = first_expert(member);
    const auto has = [&](int j) { return FULL || (group < GROUPS && first + j < (group + 1) * SIZE); };

    f32 v[PER], b[PER];
#pragma unroll
    for (int j = 0; j < PER; j += VEC) {
      f32 part[VEC], part_bias[VEC] = {};
      widen(has(j) ? load<VEC>(row + first + j) : splat<T, VEC>(-infinity()), part);
      if constexpr (BIAS) widen(has(j) ? load<VEC>(bias + first + j) : Vec<f32, VEC>{}, part_bias);
      for (int i = 0; i < VEC; ++i) v[j + i] = part[i], b[j + i] = part_bias[i];
    }
    loaded();

    f32 largest = 0.0f, factor = 1.0f;
    const auto finite = [](f32 x) {
      return fminf(fmaxf(x, -FLOAT_MAX), FLOAT_MAX);
    };  // NaN becomes the lowest
    const auto score = [&](f32 x) {
      return SCORE == Score::sigmoid ? sigmoid(x) : exp2_approx((finite(x) - largest) * LOG2_E) * factor;
    };
    if constexpr (SUM_ALL) {
      largest = -FLOAT_MAX;
      for (int j = 0; j < PER; ++j) largest = fmaxf(largest, finite(v[j]));
      largest = warp_reduce<LANES>(largest, Max{});
      f32 sum = 0.0f;
      for (int j = 0; j < PER; ++j) sum += has(j) ? score(v[j]) : 0.0f;
      factor = reciprocal_approx(warp_reduce<LANES>(sum, Sum{}));
    }

    const auto choice = [&](f32 x, f32 bonus) {
      return !BIAS || (SCORE == Score::softmax && x != x) ? x : score(x) + bonus;
    };
    u32 sorted[PER];
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      sorted[j] = has(j) ? ordered_key(choice(v[j], b[j])) : 0u;
      memory.keys[j][lane] = sorted[j];
    }
    sort_descending(sorted);
#pragma unroll
    for (int j = 1; j < PER; ++j) memory.queue[j][lane] = sorted[j];

    u32 head = sorted[0];
    if constexpr (TOPK_GROUPS < GROUPS) {
      u32 best = head, second = PER > 1 ? sorted[PER > 1] : 0u;
#pragma unroll
      for (int lanes = LANES_OF / 2; lanes > 0; lanes /= 2) {
        const u32 other = __shfl_xor_sync(0xffffffffu, best, lanes),
                  other_second = __shfl_xor_sync(0xffffffffu, second, lanes);
        second = max(min(best, other), max(second, other_second));
        best = max(best, other);
      }
      if (BIAS && group < GROUPS) best = ordered_key(key_value(best) + key_value(second));
      int better = 0;  // groups that come before this one
#pragma unroll
      for (int other = 1; other < next_pow2(GROUPS); ++other) {
        const u32 theirs = __shfl_xor_sync(0xffffffffu, best, other * LANES_OF);
        const u32 lower = (group & (1 << (31 - __clz(other)))) != 0;  // the lower group wins a tie
        better += theirs + lower > best;
      }
      if (better >= TOPK_GROUPS) head = 0;
    }

    int taken = 0;
#pragma unroll 2
    for (int i = 0; i < K; ++i) {
      const u32 those = __ballot_sync(0xffffffffu, head == team_max<LANES>(head)) & (TEAM << team);
      if ((those & (0u - those)) >> lane & 1) {
        memory.picks[team + i] = {head, static_cast<u32>(lane)};
        head = ++taken < PER ? memory.queue[taken][lane] : 0u;
      }
    }
    __syncwarp();

    // Member i looks up pick i among the keys of the lane that had it. Equal keys of a lane were picked one
    // after the other. The pick's distance from the first pick of such a run tells which of the equal keys
    // it is.
    const int own = team + (member < K ? member : 0);
    const Pick pick = memory.picks[own], previous = memory.picks[own > team ? own - 1 : own];
    const u32 runs =
        __ballot_sync(0xffffffffu, own == team || pick.key != previous.key || pick.lane != previous.lane);
    const int earlier = __clz(runs << (31 - lane));
    u32 equal = 0;
#pragma unroll
    for (int j = 0; j < PER; ++j) equal |= static_cast<u32>(memory.keys[j][pick.lane] == pick.key) << j;
#pragma unroll 1
    for (int i = 0; i < earlier; ++i) equal &= equal - 1;
    const int expert = first_expert(pick.lane - team) + __ffs(equal) - 1;

    if constexpr (SCORE == Score::softmax && !SUM_ALL)
      largest = finite(key_value(memory.picks[team].key));  // no logit is larger than the first pick's
    f32 logit[1] = {key_value(pick.key)};
    if constexpr (BIAS) widen(load<1>(row + expert), logit);
    f32 weight = member < K ? score(finite(logit[0])) : 0.0f;
    if constexpr (RENORM) {
      const f32 sum = warp_reduce<next_pow2(K)>(weight, Sum{});
      weight = sum >= FLOAT_MIN ? weight * reciprocal_approx(sum) : 1.0f / K;
    }
    if (member < K) store(member, expert, weight);
  }
};

}  // namespace kiln
