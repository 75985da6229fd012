// Element types that hold raw bits, and their conversions to and from float.
//
// Conversions round to nearest even; fp8 saturates to the largest finite value. Each type has the layout of
// the vendor's type (__half, __nv_bfloat16, __nv_fp8_e4m3, __nv_fp8_e5m2, __nv_fp8_e8m0), so a pointer to one
// may be passed as a pointer to the other.
// ue8m0 is an exponent without a sign, of value 2^(bits - 127). It holds scales, so a conversion to it rounds
// the magnitude up to a power of two: what is divided by a scale must not become too large.
#pragma once
#include "kiln/fp8.cuh"
#include "kiln/types.cuh"

namespace kiln {

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct e4m3 {
  u8 bits;
};
struct e5m2 {
  u8 bits;
};
struct ue8m0 {
  u8 bits;
};

// ---- To float. The result is exact, except for f64 and for integers beyond 2^24. -------------------------

__device__ __forceinline__ float to_float(f16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
__device__ __forceinline__ float to_float(bf16 v) { return __uint_as_float(static_cast<u32>(v.bits) << 16); }
__device__ __forceinline__ float to_float(e4m3 v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(v.bits)));
  return to_float(f16{static_cast<u16>(pair)});
#else
  return to_float(f16{fp8::e4m3_to_half_bits_over_256(v.bits)}) * 256.0f;
#endif
}
__device__ __forceinline__ float to_float(e5m2 v) { return to_float(f16{fp8::e5m2_to_half_bits(v.bits)}); }
__device__ __forceinline__ float to_float(ue8m0 v) {
  return __uint_as_float(fp8::ue8m0_to_float_bits(v.bits));
}
__device__ __forceinline__ float to_float(f32 v) { return v; }
__device__ __forceinline__ float to_float(f64 v) { return static_cast<float>(v); }
__device__ __forceinline__ float to_float(i8 v) { return static_cast<float>(v); }
__device__ __forceinline__ float to_float(u8 v) { return static_cast<float>(v); }
__device__ __forceinline__ float to_float(i32 v) { return static_cast<float>(v); }
__device__ __forceinline__ float to_float(u32 v) { return static_cast<float>(v); }
__device__ __forceinline__ float to_float(i64 v) { return static_cast<float>(v); }
__device__ __forceinline__ float to_float(u64 v) { return static_cast<float>(v); }

// Returns v as a double, for references. The result is exact, except for 64-bit integers beyond 2^53.
template <typename T>
__device__ __forceinline__ double to_double(T v) {
  if constexpr (same<T, f64> || same<T, i32> || same<T, u32> || same<T, i64> || same<T, u64>) {
    return static_cast<double>(v);
  } else {
    return static_cast<double>(to_float(v));
  }
}

// ---- From float. ------------------------------------------------------------------------------------------

// These four functions convert two values at once, and return `low` in the lower half of the result. Two
// single conversions would need a third instruction to join their results.
__device__ __forceinline__ u32 f16x2_bits(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ u32 bf16x2_bits(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ u16 e4m3x2_bits(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return static_cast<u16>(fp8::e4m3_from_float_bits(__float_as_uint(low)) |
                          (fp8::e4m3_from_float_bits(__float_as_uint(high)) << 8));
#endif
}
__device__ __forceinline__ u16 e5m2x2_bits(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return static_cast<u16>(fp8::e5m2_from_float_bits(__float_as_uint(low)) |
                          (fp8::e5m2_from_float_bits(__float_as_uint(high)) << 8));
#endif
}

// Returns f rounded to T, any element type. Integers are rounded to nearest even, and saturate. ue8m0 is the
// smallest power of two that is at least |f|, between 2^-127 and 2^127.
template <typename T>
__device__ __forceinline__ T from_float(float f) {
  if constexpr (same<T, f16>) {
    return f16{static_cast<u16>(f16x2_bits(f, 0.0f))};
  } else if constexpr (same<T, bf16>) {
    return bf16{static_cast<u16>(bf16x2_bits(f, 0.0f))};
  } else if constexpr (same<T, e4m3>) {
    return e4m3{static_cast<u8>(e4m3x2_bits(f, 0.0f))};
  } else if constexpr (same<T, e5m2>) {
    return e5m2{static_cast<u8>(e5m2x2_bits(f, 0.0f))};
  } else if constexpr (same<T, ue8m0>) {
    return ue8m0{fp8::ue8m0_from_float_bits(__float_as_uint(f))};
  } else if constexpr (same<T, i8>) {
    return static_cast<i8>(max(-128, min(127, __float2int_rn(f))));
  } else if constexpr (same<T, u8>) {
    return static_cast<u8>(min(255u, __float2uint_rn(f)));
  } else if constexpr (same<T, i32>) {
    return __float2int_rn(f);
  } else if constexpr (same<T, u32>) {
    return __float2uint_rn(f);
  } else if constexpr (same<T, i64>) {
    return __float2ll_rn(f);
  } else if constexpr (same<T, u64>) {
    return __float2ull_rn(f);
  } else {
    static_assert(same<T, f32> || same<T, f64>, "from_float: T is not an element type");
    return static_cast<T>(f);
  }
}

template <typename T>
inline constexpr bool is_float = same<T, f32> || same<T, f64> || same<T, f16> || same<T, bf16> ||
                                 same<T, e4m3> || same<T, e5m2> || same<T, ue8m0>;
template <typename T>
inline constexpr bool is_fp8 = same<T, e4m3> || same<T, e5m2>;

}  // namespace kiln
