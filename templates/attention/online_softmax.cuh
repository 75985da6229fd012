// This header computes a softmax over values that come in groups, in base 2. A row sums 2^(x - shift).
// It rescales its sum when the largest value of a group is far above the shift. Where x is a product
// times a scale, the multiply-add that subtracts the shift makes it: product * scale + offset().
// The shift is rounded once, so that groups before and after a rescaling count alike.
#pragma once
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"

namespace kiln {

// A row is rescaled only where its largest value has grown by this power of two since the last rescaling.
// 2^(x - shift) thus stays far below the largest f16, and after the first groups a warp hardly ever rescales.
inline constexpr f32 SOFTMAX_SLACK = 8.0f;

// SoftmaxRow is what a row has seen. `shift` is a value that occurred, at most SOFTMAX_SLACK below the
// largest one. Where nothing was seen yet, it is -infinity.
struct SoftmaxRow {
  f32 shift = -infinity(), sum = 0.0f;

  __device__ __forceinline__ bool outgrown(f32 largest) const { return largest > shift + SOFTMAX_SLACK; }

  // Takes `largest` as the shift if it is larger, and returns the factor of everything that was
  // summed before. Where both are -infinity, the factor is 0, not NaN.
  __device__ __forceinline__ f32 rescale(f32 largest) {
    const f32 before = shift;
    shift = fmaxf(shift, largest);
    const f32 factor = exp2_approx(before - finite_shift(shift));
    sum *= factor;
    return factor;
  }

  // The weight of x is exp2_approx(x + offset()). Where nothing was seen,
  // the weight is 0, since all x are -infinity.
  __device__ __forceinline__ f32 offset() const { return -finite_shift(shift); }
  // Returns the weight of x * scale, with one rounding in every build. A compiler that fuses in one place and
  // not in another makes 1 % of difference between logits of -2e5.
  __device__ __forceinline__ f32 weight(f32 x, f32 scale) const {
    return exp2_approx(fmaf(x, scale, offset()));
  }

  // Returns log2 of the sum of 2^x over all x, or -infinity where the row saw nothing.
  __device__ __forceinline__ f32 lse() const { return sum > 0.0f ? shift + log2_approx(sum) : -infinity(); }
  // Returns the factor that makes a mean of the weighted sum of values, or 0 where the row saw nothing.
  __device__ __forceinline__ f32 inverse() const { return sum > 0.0f ? reciprocal_approx(sum) : 0.0f; }
};

}  // namespace kiln
