// Scales of fp8 quantisation: codes are x / scale, rounded and saturated; scale is max(amax, eps) / largest<OUT>, or given.
#pragma once
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// What scales are made from: nothing, they are given; partial maxima of the whole matrix; each row; each group of neighbours in a row.
enum class Scaling { fixed, tensor, row, group };

// The largest finite value of an fp8 type. Both are 1.75 times a power of two.
template <typename OUT>
inline constexpr float largest = same<OUT, e4m3> ? 448.0f : 57344.0f;

// The largest magnitude (T: f32, f16, bf16). NaN counts for nothing: one does not decide over the scale of its neighbours.
template <typename T, int N>
__device__ __forceinline__ float amax_of(const Vec<T, N>& v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
  if constexpr (sizeof(T) == 2 && N > 1) {  // pairs in one instruction; the signs are then of no meaning
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

// The largest v >= 0 of THREADS threads, as row_reduce gives it; a warp's in one instruction, for the bits of such floats are ordered like
// them. Volatile: it must not sink to where one thread alone wants the result.
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

// x / y as IEEE division rounds it, in three instructions, for `reciprocal` = 1 / y rounded to nearest (Markstein, IBM J. Res. Dev. 34, 1990).
// The remainder is taken with this sign so that -0 stays -0. REQUIRES: y and reciprocal are normal, x and the quotient are finite; a
// quotient below 2^-100 may be an ulp off.
__device__ __forceinline__ float divide(float x, float y, float reciprocal) {
  const float q = x * reciprocal;
  return fmaf(-fmaf(q, y, -x), reciprocal, q);
}

// The same, and infinite where x is or where the quotient is too large.
__device__ __forceinline__ float divide_any(float x, float y, float reciprocal) {
  const float q = x * reciprocal;
  return fabsf(q) < infinity() ? divide(x, y, reciprocal) : q;
}

// The scale for magnitudes up to amax. An infinity counts as the largest float, so that a scale is finite. POW2: rounded up to a power of
// two. An eps below 2^-100, zero too, counts as that: the scale stays normal.
template <typename OUT, bool POW2>
__device__ __forceinline__ float scale_of(float amax, float eps) {
  const float a = fminf(fmaxf(amax, fmaxf(eps, 0x1p-100f)), 3.40282347e38f);
  if constexpr (POW2) {
    constexpr u32 EXPONENT =
        same<OUT, e4m3> ? 8 : 15;  // largest<OUT> = 1.75 * 2^EXPONENT, so a significand above 1.75 carries
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
