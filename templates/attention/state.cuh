// Attention over a part of the keys and values is a state: the mean of the values, weighted by softmax, and
// lse, the base-2 logarithm of the sum of the exponentials. Two states make that of both parts; one that saw
// nothing has lse = -infinity.
#pragma once
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// N elements of what has been merged so far.
template <int N>
struct AttentionState {
  f32 largest = -infinity(), sum = 0.0f, weighted[N] = {};

  // COUNT states in their order, of which lse is shift + log2(count). The mean of one that saw nothing (shift -infinity) is not looked at: it may be NaN.
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

  template <int COUNT, typename T>
  __device__ __forceinline__ void take(const f32 (&lse)[COUNT], const Vec<T, N> (&mean)[COUNT]) {
    f32 ones[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) ones[i] = 1.0f;
    take(lse, ones, mean);
  }

  // Nothing seen: 0 and -infinity.
  __device__ __forceinline__ void mean(f32 (&out)[N]) const {
    const f32 factor = sum == 0.0f ? 0.0f : reciprocal_approx(sum);
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = weighted[j] * factor;
  }
  __device__ __forceinline__ f32 lse() const { return finite_shift(largest) + log2_approx(sum); }
};

}  // namespace kiln
