// Naive reference for topk_gate, with one block per token. Scores are in double. The values compared for
// choosing are f32, as the contract says: in double, neighbours closer than 2^-24 would change places.
// Softmax with bias still compares doubles, because its f32 sum depends on the order of additions.
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"

namespace kiln {

enum class Score { softmax, sigmoid };

namespace reference {

template <typename T, int E, int K, Score SCORE, bool BIAS, bool RENORM, int GROUPS, int TOPK_GROUPS>
__global__ void topk_gate(f64* weights, f64* ids, const T* logits, i32 tokens, i64 stride_logits, f32 scale,
                          const f32* bias) {
  __shared__ f64 score[E], choice[E];
  const i64 token = blockIdx.x;
  if (token >= tokens || threadIdx.x > 0) return;
  const f64 lowest = -FLOAT_MAX;
  const auto finite = [&](f64 v) { return v != v || v < lowest ? lowest : v > -lowest ? -lowest : v; };
  f64 largest = lowest, sum = 0;
  for (int e = 0; e < E; ++e) largest = fmax(largest, finite(to_double(logits[token * stride_logits + e])));
  for (int e = 0; e < E; ++e) sum += exp(finite(to_double(logits[token * stride_logits + e])) - largest);
  for (int e = 0; e < E; ++e) {
    const f32 v = to_float(logits[token * stride_logits + e]);
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
    weights[token * K + k] = weight * scale;
    ids[token * K + k] = chosen[k];
  }
}

}  // namespace reference
}  // namespace kiln
