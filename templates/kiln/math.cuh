// Fast elementary functions on the special function unit.
//
// The errors stated here come from the PTX ISA. They are relative and hold for the full range, unless the
// comment of a function says otherwise. Subnormal inputs and results become zero.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

inline constexpr float LOG2_E = 1.4426950408889634f;
inline constexpr float LN_2 = 0.6931471805599453f;
inline constexpr float SQRT_HALF = 0.7071067811865476f;
inline constexpr float FLOAT_MAX = 3.402823466385288598e38f;
inline constexpr float FLOAT_MIN = 1.175494350822287508e-38f;  // the smallest positive normal float

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// Returns 2^x with an error of 2^-22.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns log2(x) with an error of 2^-22, which is absolute for x near 1.
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns 1 / x with an error of 1 ulp. Infinity gives 0, and 0 gives infinity.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns 1 / sqrt(x) with an error of 2^-22.9.
__device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns 1 / (1 + e^-x). The error is about 2^-21 for |x| < 8, and grows with |x|, because the argument of
// 2^x is rounded.
__device__ __forceinline__ float sigmoid(float x) {
  return reciprocal_approx(1.0f + exp2_approx(-LOG2_E * x));
}

}  // namespace kiln
