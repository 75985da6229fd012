// Softmax over what comes in blocks: a row's values are summed as 2^(x - shift), and what has been summed is rescaled when a block's largest value
// leaves the shift far behind. Logits are in base 2 once they are multiplied by `scale`.
#pragma once
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"

namespace kiln {

// A row is rescaled only where its largest value has grown by this power of two since: 2^x stays far below what f16 holds, and after the first blocks
// a warp hardly ever has to.
inline constexpr f32 SOFTMAX_SLACK = 8.0f;

// What a row has seen. `shift` is a value that occurred (times scale: base 2), at most SOFTMAX_SLACK below the largest; -infinity: nothing yet.
struct SoftmaxRow {
  f32 shift = -infinity(), sum = 0.0f;

  __device__ __forceinline__ bool outgrown(f32 largest, f32 scale) const { return largest * scale > shift * scale + SOFTMAX_SLACK; }

  // Takes `largest` as shift if it is larger; gives the factor of all that was summed before. -infinity for both makes no NaN.
  __device__ __forceinline__ f32 rescale(f32 largest, f32 scale) {
    const f32 before = shift;
    shift = fmaxf(shift, largest);
    const f32 factor = exp2_approx((before - finite_shift(shift)) * scale);
    sum *= factor;
    return factor;
  }

  // 2^(x * scale - shift * scale) is exp2_approx(x * scale + offset(scale)): one multiply-add. Where nothing was seen it is 0, since all x are
  // -infinity.
  __device__ __forceinline__ f32 offset(f32 scale) const { return -finite_shift(shift) * scale; }

  // log2 of the sum over all of 2^(x * scale). A row that sees nothing: -infinity.
  __device__ __forceinline__ f32 lse(f32 scale) const { return sum > 0.0f ? shift * scale + log2_approx(sum) : -infinity(); }
  // The factor of the weighted sum of values. A row that sees nothing: 0.
  __device__ __forceinline__ f32 inverse() const { return sum > 0.0f ? reciprocal_approx(sum) : 0.0f; }
};

}  // namespace kiln
