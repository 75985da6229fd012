// A softmax, in base 2, over values that come in groups. A row sums 2^(x - shift).
//
// A row rescales its sum when the largest value of a group is far above the shift. If x is a product times a
// scale, one multiply-add also subtracts the shift: product * scale + offset(). The shift is rounded once, so
// that groups before and after a rescaling count alike.
#pragma once
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"

namespace kiln {

// A row is rescaled only if its largest value has grown by more than this power of two since the last
// rescaling. 2^(x - shift) thus stays far below the largest f16. After the first groups a warp hardly
// ever rescales.
inline constexpr f32 SOFTMAX_SLACK = 8.0f;

// The state of a row. `shift` is a value that occurred, at most SOFTMAX_SLACK below the largest value. If the
// row has seen nothing yet, `shift` is -infinity.
struct SoftmaxRow {
  f32 shift = -infinity(), sum = 0.0f;

  __device__ __forceinline__ bool outgrown(f32 largest) const { return largest > shift + SOFTMAX_SLACK; }

  // Takes `largest` as the shift if it is larger. Returns the factor of everything that was summed before. If
  // both are -infinity, the factor is 0, not NaN.
  __device__ __forceinline__ f32 rescale(f32 largest) {
    const f32 before = shift;
    shift = fmaxf(shift, largest);
    const f32 factor = exp2_approx(before - finite_shift(shift));
    sum *= factor;
    return factor;
  }

  // The weight of x is exp2_approx(x + offset()). If the row has seen nothing, the weight is 0, because all x
  // are -infinity.
  __device__ __forceinline__ f32 offset() const { return -finite_shift(shift); }
  // Returns the weight of x * scale, with one rounding in every build. A compiler that fuses the multiply-add
  // in one place and not in another causes a difference of 1 % for logits of -2e5.
  __device__ __forceinline__ f32 weight(f32 x, f32 scale) const {
    return exp2_approx(fmaf(x, scale, offset()));
  }

  // Counts one more value, whose weight is in the sum alone, and not in any weighted sum. Returns the factor of everything
  // that was summed before, as rescale() does.
  __device__ __forceinline__ f32 add(f32 x) {
    const f32 factor = rescale(x);
    sum += exp2_approx(x + offset());
    return factor;
  }

  // Returns log2 of the sum of 2^x over all x, or -infinity if the row saw nothing.
  __device__ __forceinline__ f32 lse() const { return sum > 0.0f ? shift + log2_approx(sum) : -infinity(); }
  // Returns the factor that turns the weighted sum of values into their mean, or 0 if the row saw nothing.
  __device__ __forceinline__ f32 inverse() const { return sum > 0.0f ? reciprocal_approx(sum) : 0.0f; }
};

}  // namespace kiln
