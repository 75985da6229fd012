// Fast elementary functions on the special function unit. Errors are PTX ISA's (relative, full range unless said); subnormal inputs and results are zero.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

inline constexpr float LOG2_E = 1.4426950408889634f;
inline constexpr float LN_2 = 0.6931471805599453f;
inline constexpr float SQRT_HALF = 0.7071067811865476f;
inline constexpr float FLOAT_MAX = 3.402823466385288598e38f;
inline constexpr float FLOAT_MIN = 1.175494350822287508e-38f;  // the smallest that is not subnormal

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// 2^x; error 2^-22.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2(x); error 2^-22, absolute near 1.
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x; error 1 ulp. Infinity gives 0, 0 gives infinity.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / sqrt(x); error 2^-22.9.
__device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / (1 + e^-x); error about 2^-21 for |x| < 8, growing with |x| as the argument of 2^x rounds.
__device__ __forceinline__ float sigmoid(float x) {
  return reciprocal_approx(1.0f + exp2_approx(-LOG2_E * x));
}

}  // namespace kiln
