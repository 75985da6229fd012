// Scales of fp8 quantisation, and the division by them.
//
// A code is x / scale, rounded and saturated. The caller gives the scale, or it is max(amax, eps) /
// largest<OUT>. Here amax is the largest magnitude among the elements that share the scale.
#pragma once
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// The source of a scale:
// - fixed: the caller gives the scale.
// - tensor: the partial maxima of the whole matrix, which an earlier kernel has found.
// - row: the elements of a row.
// - group: a group of neighbours in a row.
enum class Scaling { fixed, tensor, row, group };

// The largest finite value of the fp8 type OUT (e4m3 or e5m2). Both values are 1.75 times a power of two.
template <typename OUT>
inline constexpr float largest = same<OUT, e4m3> ? 448.0f : 57344.0f;

// Returns the largest magnitude in v (T: f32, f16, bf16). A NaN is ignored, so that it does not decide the
// scale of its neighbours; if all are NaN, the result is 0.
template <typename T, int N>
__device__ __forceinline__ float amax_of(const Vec<T, N>& v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
  if constexpr (sizeof(T) == 2 && N > 1) {  // one instruction takes a pair; its results' signs mean nothing
    Vec<T, 2> pair;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      if constexpr (same<T, bf16>) {
        asm("max.xorsign.abs.bf16x2 %0, %0, %1;" : "+r"(pair.word[0]) : "r"(v.word[i]));
      } else {
        asm("max.xorsign.abs.f16x2 %0, %0, %1;" : "+r"(pair.word[0]) : "r"(v.word[i]));
      }
    }
    float out[2];
    widen(pair, out);
    return fmaxf(fabsf(out[0]), fabsf(out[1]));
  }
#endif
  float out[N], found = 0.0f;
  widen(v, out);
#pragma unroll
  for (int i = 0; i < N; ++i) found = fmaxf(found, fabsf(out[i]));
  return found;
}

// Returns the largest v of the THREADS threads of a row, with the parameters and rules of row_reduce().
// REQUIRES: v >= 0. The bit patterns of such floats have the order of their values, so one integer
// instruction reduces a warp. That instruction needs all lanes. It is volatile, so that the compiler does not
// move it into a branch in which a single thread uses the result.
template <int THREADS>
__device__ __forceinline__ float row_amax(float v, float* shared, int thread) {
  if constexpr (THREADS < 32) {
    return warp_reduce<THREADS>(v, Max{});
  } else {
    const auto warp_amax = [](float f) {
      u32 bits;
      asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(bits) : "r"(__float_as_uint(f)));
      return __uint_as_float(bits);
    };
    v = warp_amax(v);
    if constexpr (THREADS == 32) return v;
    if (thread % 32 == 0) shared[thread / 32] = v;
    __syncthreads();
    return warp_amax(thread % 32 < THREADS / 32 ? shared[thread % 32] : 0.0f);
  }
}

// Returns x / y as IEEE division rounds it, in three instructions (Markstein, IBM J. Res. Dev. 34, 1990).
// `reciprocal` is 1 / y rounded to nearest. REQUIRES: y and reciprocal are normal; x and the quotient are
// finite. A quotient below 2^-100 may be an ulp off.
// The remainder is computed as -(q * y - x) and not as x - q * y, so that -0 stays -0.
__device__ __forceinline__ float divide(float x, float y, float reciprocal) {
  const float q = x * reciprocal;
  return fmaf(-fmaf(q, y, -x), reciprocal, q);
}

// Returns x / y as divide() does, for any x. The result is infinite if x is infinite or the quotient is too
// large. It is NaN if x is NaN.
__device__ __forceinline__ float divide_any(float x, float y, float reciprocal) {
  const float q = x * reciprocal;
  return fabsf(q) < infinity() ? divide(x, y, reciprocal) : q;
}

// Returns the scale for magnitudes up to amax; with POW2 it is rounded up to a power of two. An infinite amax
// counts as the largest float, so that the scale is finite. An eps below 2^-100, also 0, counts as 2^-100, so
// that the scale is normal.
template <typename OUT, bool POW2>
__device__ __forceinline__ float scale_of(float amax, float eps) {
  const float a = fminf(fmaxf(amax, fmaxf(eps, 0x1p-100f)), 3.40282347e38f);
  if constexpr (POW2) {
    // largest<OUT> = 1.75 * 2^EXPONENT, so a significand above 1.75 carries into the exponent.
    constexpr u32 EXPONENT = same<OUT, e4m3> ? 8 : 15;
    return __uint_as_float(((__float_as_uint(a) + 0x1fffffu) & 0x7f800000u) - (EXPONENT << 23));
  } else {
    return divide(a, largest<OUT>, 1.0f / largest<OUT>);
  }
}

// An array of scales in global memory, one for each group of each row.
// - SCALE = f32: each scale is a float. Strides count floats.
// - SCALE = u8: each scale is a power of two, stored as its biased exponent (UE8M0). A 32-bit word has the
//   exponents of four groups, the first in its lowest byte. Strides count words; stride_group is the distance
//   from a word of a row to the next word of the row.
template <typename SCALE>
struct ScaleArray {
  SCALE* base;
  i64 stride_row, stride_group;

  // Stores the scale of group `group` of the GROUPS groups of a row. The call for the last group also clears
  // those bytes of its word that belong to no group.
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
