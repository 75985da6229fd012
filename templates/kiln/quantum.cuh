// Scales of fp8 quantisation: codes are x / scale, rounded and saturated; scale is max(amax, eps) / largest<OUT>, or given.
#pragma once
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"

namespace kiln {

// What scales are made from: nothing, they are given; partial maxima of the whole matrix; each row; each group of neighbours in a row.
enum class Scaling { fixed, tensor, row, group };

// The largest finite value of an fp8 type. Both are 1.75 times a power of two.
template <typename OUT>
inline constexpr float largest = same<OUT, e4m3> ? 448.0f : 57344.0f;

// The larger magnitude. NaN counts for nothing: one does not decide over the scale of its neighbours.
__device__ __forceinline__ float larger_magnitude(float amax, float v) { return fmaxf(amax, fabsf(v)); }

// x / y as IEEE division rounds it, in three instructions, for `reciprocal` = 1 / y rounded to nearest (Markstein, IBM J. Res. Dev. 34, 1990).
// A quotient beyond the largest float is infinite. REQUIRES: y and reciprocal are normal; a quotient below 2^-100 may be an ulp off.
__device__ __forceinline__ float divide(float x, float y, float reciprocal) {
  const float q = x * reciprocal;
  const float better = fmaf(fmaf(-q, y, x), reciprocal, q);
  return fabsf(q) < infinity() ? better : q;  // infinities have no remainder
}

// The scale for magnitudes up to amax. An infinity counts as the largest float, so that a scale is finite. POW2: rounded up to a power of
// two. REQUIRES: eps >= 2^-100.
template <typename OUT, bool POW2>
__device__ __forceinline__ float scale_of(float amax, float eps) {
  const float a = fminf(fmaxf(amax, eps), 3.40282347e38f);
  if constexpr (POW2) {
    constexpr u32 EXPONENT = same<OUT, e4m3> ? 8 : 15;  // largest<OUT> = 1.75 * 2^EXPONENT, so a significand above 1.75 carries
    return __uint_as_float(((__float_as_uint(a) + 0x1fffffu) & 0x7f800000u) - (EXPONENT << 23));
  } else {
    return divide(a, largest<OUT>, 1.0f / largest<OUT>);
  }
}

// Where scales lie: an f32 for each group of a row, or the biased exponents (UE8M0) of four groups in one 32-bit word, the first in the
// lowest byte. Strides are in floats or words.
template <typename SCALE>
struct Scales {
  SCALE* base;
  i64 stride_row, stride_group;

  // GROUPS of a row; the last of them also clears the bytes that its word has left.
  template <int GROUPS>
  __device__ __forceinline__ void store(i64 row, int group, float scale) const {
    if constexpr (same<SCALE, f32>) {
      base[row * stride_row + group * stride_group] = scale;
    } else {
      u8* word = base + 4 * (row * stride_row + group / 4 * stride_group);
      word[group % 4] = static_cast<u8>(__float_as_uint(scale) >> 23);
      for (int i = GROUPS % 4; group == GROUPS - 1 && i > 0 && i < 4; ++i) word[i] = 0;
    }
  }
};

}  // namespace kiln
