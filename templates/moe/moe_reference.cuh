// The references of topk_gate, moe_align and moe_route: the choice for a token, and the alignment by one block.
#pragma once
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "moe/score.cuh"

namespace kiln {

namespace reference {

// Chooses the experts of the token with the logits `row`, by one thread. `score` and `choice` have E elements.
// Scores are in double. The values compared for choosing are f32, as the contract says: in double, neighbours
// closer than 2^-24 would change places. Softmax with bias still compares doubles, because its f32 sum depends
// on the order of additions.
template <typename T, int E, int K, Score SCORE, bool BIAS, bool RENORM, int GROUPS, int TOPK_GROUPS>
__device__ void choose(f64* weights, f64* ids, f64* score, f64* choice, const T* row, f32 scale,
                       const f32* bias) {
  const f64 lowest = -FLOAT_MAX;
  const auto finite = [&](f64 v) { return v != v || v < lowest ? lowest : v > -lowest ? -lowest : v; };
  f64 largest = lowest, sum = 0;
  for (int e = 0; e < E; ++e) largest = fmax(largest, finite(to_double(row[e])));
  for (int e = 0; e < E; ++e) sum += exp(finite(to_double(row[e])) - largest);
  for (int e = 0; e < E; ++e) {
    const f32 v = to_float(row[e]);
    score[e] = SCORE == Score::softmax ? exp(finite(v) - largest) / sum : 1.0 / (1.0 + exp(-finite(v)));
    choice[e] = !BIAS ? v : SCORE == Score::softmax ? score[e] + bias[e] : sigmoid(v) + bias[e];
    if (choice[e] != choice[e] || v != v) choice[e] = -infinity();
  }

  bool open[GROUPS] = {};  // groups to choose from
  constexpr int SIZE = E / GROUPS;
  for (int pick = 0; pick < TOPK_GROUPS; ++pick) {
    int best = -1;
    f64 best_of_all = 0;
    for (int g = 0; g < GROUPS; ++g) {
      f64 first = -infinity(), second = -infinity();
      for (int e = g * SIZE; e < (g + 1) * SIZE; ++e) {
        if (choice[e] > first) {
          second = first, first = choice[e];
        } else {
          second = fmax(second, choice[e]);
        }
      }
      f64 of_group = first;
      if (BIAS && GROUPS > TOPK_GROUPS)
        of_group =
            SCORE == Score::softmax ? first + second : static_cast<f32>(first) + static_cast<f32>(second);
      if (of_group != of_group) of_group = -infinity();
      if (!open[g] && (best < 0 || of_group > best_of_all)) best = g, best_of_all = of_group;
    }
    open[best] = true;
  }

  bool taken[E] = {};
  int chosen[K];
  f64 total = 0;
  for (int k = 0; k < K; ++k) {
    int best = -1;
    for (int e = 0; e < E; ++e) {
      if (open[e / SIZE] && !taken[e] && (best < 0 || choice[e] > choice[best])) best = e;
    }
    chosen[k] = best;
    taken[best] = true;
    total += score[best];
  }
  for (int k = 0; k < K; ++k) {
    const f64 weight = !RENORM ? score[chosen[k]] : total >= FLOAT_MIN ? score[chosen[k]] / total : 1.0 / K;
    weights[k] = weight * scale;
    ids[k] = chosen[k];
  }
}

// Aligns, by one block. Each thread takes whole experts, and walks all ids for each of them.
template <typename ID, int E, int BLOCK, bool LOCAL_ONLY>
__device__ void align(f64* sorted_token_ids, f64* expert_ids, f64* num_tokens_post_padded, f64* inverse,
                      const ID* topk_ids, i32 tokens, i32 k, i64 stride_ids, i32 capacity,
                      const i32* expert_map) {
  __shared__ i64 start[E + 1];
  const i64 n = static_cast<i64>(tokens) * k;
  const auto id_of = [&](i64 i) { return topk_ids[i / k * stride_ids + i % k]; };
  for (i64 i = threadIdx.x; i < capacity; i += blockDim.x) sorted_token_ids[i] = static_cast<f64>(n);
  for (i64 i = threadIdx.x; i < capacity / BLOCK; i += blockDim.x) expert_ids[i] = -1;
  for (i64 i = threadIdx.x; i < n; i += blockDim.x) inverse[i] = -1;
  for (int e = threadIdx.x; e < E; e += blockDim.x) {
    i64 count = 0;
    for (i64 i = 0; i < n; ++i) count += id_of(i) == e && !(LOCAL_ONLY && expert_map[e] < 0);
    start[e + 1] = ceil_div(count, BLOCK) * BLOCK;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    start[0] = 0;
    for (int e = 0; e < E; ++e) start[e + 1] += start[e];
    *num_tokens_post_padded = static_cast<f64>(start[E]);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < E; e += blockDim.x) {
    i64 place = start[e];
    for (i64 i = 0; i < n && place < start[e + 1]; ++i) {
      if (id_of(i) != e) continue;
      inverse[i] = static_cast<f64>(place);
      sorted_token_ids[place++] = static_cast<f64>(i);
    }
    for (i64 b = start[e] / BLOCK; b < start[e + 1] / BLOCK; ++b)
      expert_ids[b] = expert_map ? expert_map[e] : e;
  }
}

}  // namespace reference
}  // namespace kiln
