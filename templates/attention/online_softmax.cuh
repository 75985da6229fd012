// Softmax over what comes in blocks: a row's values are summed as 2^(x - shift), and what has been summed is rescaled when a block's largest value
// leaves the shift far behind. All in base 2. An x that is a product times a scale is made in the multiply-add that subtracts the shift:
// x * scale + offset(), with the shift rounded once, so that blocks before and behind a rescaling count alike.
#pragma once
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"

namespace kiln {

// A row is rescaled only where its largest value has grown by this power of two since: 2^x stays far below what f16 holds, and after the first blocks
// a warp hardly ever has to.
inline constexpr f32 SOFTMAX_SLACK = 8.0f;

// What a row has seen. `shift` is a value that occurred, at most SOFTMAX_SLACK below the largest; -infinity: nothing yet.
struct SoftmaxRow {
  f32 shift = -infinity(), sum = 0.0f;

  __device__ __forceinline__ bool outgrown(f32 largest) const { return largest > shift + SOFTMAX_SLACK; }

  // Takes `largest` as shift if it is larger; gives the factor of all that was summed before. -infinity for both makes no NaN.
  __device__ __forceinline__ f32 rescale(f32 largest) {
    const f32 before = shift;
    shift = fmaxf(shift, largest);
    const f32 factor = exp2_approx(before - finite_shift(shift));
    sum *= factor;
    return factor;
  }

  // exp2_approx(x + offset()) is what x counts. Where nothing was seen it is 0, since all x are -infinity.
  __device__ __forceinline__ f32 offset() const { return -finite_shift(shift); }
  // Of x * scale. Always in one rounding, since a compiler that fuses here and not there makes 1 % of difference between logits of -2e5.
  __device__ __forceinline__ f32 weight(f32 x, f32 scale) const {
    return exp2_approx(fmaf(x, scale, offset()));
  }

  // log2 of the sum over all of 2^x. A row that sees nothing: -infinity.
  __device__ __forceinline__ f32 lse() const { return sum > 0.0f ? shift + log2_approx(sum) : -infinity(); }
  // The factor of the weighted sum of values. A row that sees nothing: 0.
  __device__ __forceinline__ f32 inverse() const { return sum > 0.0f ? reciprocal_approx(sum) : 0.0f; }
};

}  // namespace kiln
