// Merges attention states, each of which is the attention over a part of the keys and values.
//
// A state is the mean of the values, weighted by softmax, and lse, the base-2 logarithm of the sum of the
// exponentials. Two states merge into the state of both parts. A state that saw nothing has lse = -infinity.
#pragma once
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// Accumulates N elements of the states that have been merged so far.
template <int N>
struct AttentionState {
  f32 largest = -infinity(), sum = 0.0f, weighted[N] = {};

  // Merges COUNT states in their order. The lse of state i is shift_of[i] + log2(count[i]). A state that saw
  // nothing has the shift -infinity. Its mean is not used, because it may be NaN.
  template <int COUNT, typename T>
  __device__ __forceinline__ void take(const f32 (&shift_of)[COUNT], const f32 (&count)[COUNT],
                                       const Vec<T, N> (&mean)[COUNT]) {
    f32 seen = largest;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) seen = fmaxf(seen, shift_of[i]);
    const f32 shift = finite_shift(seen), before = exp2_approx(largest - shift);
    largest = seen;
    sum *= before;
#pragma unroll
    for (int j = 0; j < N; ++j) weighted[j] *= before;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (shift_of[i] == -infinity()) continue;
      const f32 weight = count[i] * exp2_approx(shift_of[i] - shift);
      f32 x[N];
      widen(mean[i], x);
      sum += weight;
#pragma unroll
      for (int j = 0; j < N; ++j) weighted[j] = fmaf(weight, x[j], weighted[j]);
    }
  }

  // Merges COUNT states in their order, each given by its lse and its mean.
  template <int COUNT, typename T>
  __device__ __forceinline__ void take(const f32 (&lse)[COUNT], const Vec<T, N> (&mean)[COUNT]) {
    f32 ones[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) ones[i] = 1.0f;
    take(lse, ones, mean);
  }

  // mean() and lse() return the merged state. If nothing was seen, they are 0 and -infinity.
  __device__ __forceinline__ void mean(f32 (&out)[N]) const {
    const f32 factor = sum == 0.0f ? 0.0f : reciprocal_approx(sum);
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = weighted[j] * factor;
  }
  __device__ __forceinline__ f32 lse() const { return finite_shift(largest) + log2_approx(sum); }
};

}  // namespace kiln
