// Vec<T, N> holds N neighbouring elements of type T, packed in 32-bit registers.
//
// load() and store() move it with as few memory instructions as its size allows, each of at most 16 bytes.
// The elements are widened to float only where they are used.
#pragma once
#include "kiln/dtype.cuh"

namespace kiln {

template <typename T, int N>
struct Vec {
  static constexpr int BYTES = N * static_cast<int>(sizeof(T));
  static_assert(BYTES <= 16 ? (BYTES & (BYTES - 1)) == 0 : BYTES % 16 == 0,
                "a vector must have 1, 2, 4, 8 or a multiple of 16 bytes");
  static constexpr int REGISTERS = BYTES <= 4 ? 1 : BYTES / 4;
  u32 word[REGISTERS] = {};  // a vector of 1 or 2 bytes is in the low bytes of word[0]
};

// Loads N elements. REQUIRES: p is in global memory, aligned to min(16, N * sizeof(T)) bytes.
// - The loads are volatile. They are issued in program order, and are never moved over a store(), a barrier
//   or pdl_wait(), so that an output may overwrite its input in place.
// - The loads are coherent (never .nc) for the same reason.
// - They have no cache hint: L1::no_allocate costs a stream of 16-byte accesses 4 to 6 % (H200).
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load(const T* p) {
  Vec<T, N> v;
  constexpr int BYTES = Vec<T, N>::BYTES;
  if constexpr (BYTES >= 16) {
#pragma unroll
    for (int i = 0; i < BYTES / 16; ++i) {
      const char* q = reinterpret_cast<const char*>(p) + 16 * i;
      u32* w = v.word + 4 * i;
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "l"(q));
    }
  } else if constexpr (BYTES == 8) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(p));
  } else if constexpr (BYTES == 4) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(p));
  } else if constexpr (BYTES == 2) {
    asm volatile("ld.global.u16 %0, [%1];" : "=r"(v.word[0]) : "l"(p));
  } else {
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(v.word[0]) : "l"(p));
  }
  return v;
}

// Loads one float in the order that load() keeps. A value that an earlier kernel may have written is
// therefore not read before pdl_wait().
__device__ __forceinline__ f32 load_one(const f32* p) { return __uint_as_float(load<1>(p).word[0]); }

// Stores N elements. REQUIRES: p is in global memory, aligned to min(16, N * sizeof(T)) bytes.
template <typename T, int N>
__device__ __forceinline__ void store(T* p, const Vec<T, N>& v) {
  constexpr int BYTES = Vec<T, N>::BYTES;
  if constexpr (BYTES >= 16) {
#pragma unroll
    for (int i = 0; i < BYTES / 16; ++i) {
      char* q = reinterpret_cast<char*>(p) + 16 * i;
      const u32* w = v.word + 4 * i;
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(q), "r"(w[0]), "r"(w[1]), "r"(w[2]),
                   "r"(w[3])
                   : "memory");
    }
  } else if constexpr (BYTES == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.word[0]), "r"(v.word[1]) : "memory");
  } else if constexpr (BYTES == 4) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v.word[0]) : "memory");
  } else if constexpr (BYTES == 2) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "r"(v.word[0]) : "memory");
  } else {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(v.word[0]) : "memory");
  }
}

// Sets out[i] to element i, exactly (T: f32, f16, bf16, e4m3, e5m2, ue8m0).
template <typename T, int N>
__device__ __forceinline__ void widen(const Vec<T, N>& v, float (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if constexpr (sizeof(T) == 4) {
      out[i] = __uint_as_float(v.word[i]);
    } else if constexpr (same<T, bf16>) {
      out[i] = __uint_as_float(i % 2 == 0 ? v.word[i / 2] << 16 : v.word[i / 2] & 0xffff0000u);
    } else if constexpr (same<T, f16>) {
      out[i] = to_float(f16{static_cast<u16>(v.word[i / 2] >> (16 * (i % 2)))});
    } else {
      out[i] = to_float(T{static_cast<u8>(v.word[i / 4] >> (8 * (i % 4)))});
    }
  }
}

// Call this between two uses of a vector. For the second use, the compiler then computes derived values
// again, such as the widened elements. It would otherwise hold them in registers between the two uses.
template <typename T, int N>
__device__ __forceinline__ void keep_packed(Vec<T, N>& v) {
#pragma unroll
  for (int i = 0; i < Vec<T, N>::REGISTERS; ++i) asm volatile("" : "+r"(v.word[i]));
}

// Returns the largest element (T: f32, f16, bf16). A NaN is ignored, unless all elements are NaN.
template <typename T, int N>
__device__ __forceinline__ float max_of(const Vec<T, N>& v) {
  if constexpr (sizeof(T) == 2 && N > 1) {  // one instruction takes a pair
    Vec<T, 2> pair;
    pair.word[0] = v.word[0];
#pragma unroll
    for (int i = 1; i < N / 2; ++i) {
      if constexpr (same<T, bf16>) {
        asm("max.bf16x2 %0, %0, %1;" : "+r"(pair.word[0]) : "r"(v.word[i]));
      } else {
        asm("max.f16x2 %0, %0, %1;" : "+r"(pair.word[0]) : "r"(v.word[i]));
      }
    }
    float out[2];
    widen(pair, out);
    return fmaxf(out[0], out[1]);
  } else {
    float out[N];
    widen(v, out);
#pragma unroll
    for (int i = 1; i < N; ++i) out[0] = fmaxf(out[0], out[i]);
    return out[0];
  }
}

// Rounds each value to T (f32, f16, bf16, e4m3, e5m2, ue8m0), as from_float() does.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> narrow(const float (&in)[N]) {
  Vec<T, N> v;
  constexpr int STEP = sizeof(T) == 4 ? 1 : 2;  // 16- and 8-bit types are converted in pairs
#pragma unroll
  for (int i = 0; i < N; i += STEP) {
    const float low = in[i], high = i + 1 < N ? in[i + STEP - 1] : 0.0f;
    if constexpr (sizeof(T) == 4) {
      v.word[i] = __float_as_uint(low);
    } else if constexpr (same<T, bf16>) {
      v.word[i / 2] = bf16x2_bits(low, high);
    } else if constexpr (same<T, f16>) {
      v.word[i / 2] = f16x2_bits(low, high);
    } else if constexpr (same<T, ue8m0>) {
      const u32 pair = static_cast<u32>(from_float<ue8m0>(low).bits | from_float<ue8m0>(high).bits << 8);
      v.word[i / 4] |= pair << (8 * (i % 4));
    } else {
      const u32 pair = same<T, e4m3> ? e4m3x2_bits(low, high) : e5m2x2_bits(low, high);
      v.word[i / 4] |= pair << (8 * (i % 4));
    }
  }
  return v;
}

// Returns a vector whose elements are all f, rounded to T.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> splat(float f) {
  float v[N];
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = f;
  return narrow<T>(v);
}

// Begins to bring the line that has this byte into the L2.
__device__ __forceinline__ void prefetch_line(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

}  // namespace kiln
