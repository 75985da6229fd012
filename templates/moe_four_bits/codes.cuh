// Weights of 4 bits with scales, packed for mma(), and their way to 16 bits in registers.
//
// A packed weight consists of tiles of 16 rows and 64 elements of K, in the order of K and then of the rows. A tile has 16
// bytes for each lane of a warp: a word for each of four products of 16 elements of K. Let g = lane / 4 and t = lane % 4.
// Word s has 8 codes, in four pairs that become the registers of the left operand:
//
//     pair 0 (g, k)   pair 1 (g + 8, k)   pair 2 (g, k + 2)   pair 3 (g + 8, k + 2)   with k = s / 2 * 32 + t * 8 + s % 2 * 4
//
// A pair is the element listed above and the next one along K; the first has the low half of the word. A thread thus reads
// the right operand of two words, 8 neighbours, with one load of 16 bytes. Every 32 of K are by themselves, for scales of
// groups of 32.
//
// The codes of int4 are 0 to 15. Pair j has bits 4 j to 4 j + 3 of each half. A code of e2m1 is a sign, two bits of exponent
// and one of mantissa. The three bits of pair j are at bits 6, 9, 3 and 0 of each half, and its sign is at bit 15, 14, 12 or 13.
// Two of the pairs then need one shift for both parts.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

// int4: (code - zero) * scale, with a zero of 8 unless there are others. e2m1: the elements of MXFP4.
enum class Codes { int4, e2m1 };

inline constexpr int PACKED_ROWS = 16, PACKED_K = 64, PACKED_WORDS = 128;  // of a tile

// Returns a b + c for two elements of T.
template <typename T>
__device__ __forceinline__ u32 multiply_add_pair(u32 a, u32 b, u32 c) {
  u32 d;
  if constexpr (same<T, f16>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

// Returns (a & mask) | bits by one instruction. The compiler takes two for two constants.
__device__ __forceinline__ u32 and_or(u32 a, u32 mask, u32 bits) {
  u32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(bits));
  return d;
}

// Moves bits from position FROM to position TO.
template <int FROM, int TO>
__device__ __forceinline__ u32 moved(u32 word) {
  return FROM <= TO ? word << (TO - FROM & 31) : word >> (FROM - TO & 31);
}

// Sets out to two scales. For ue8m0, 2^-127 becomes 0, and NaN becomes infinity: a full conversion would take as long as the
// products.
template <typename S>
__device__ __forceinline__ void factors(const Vec<S, 2>& v, f32 (&out)[2]) {
  if constexpr (same<S, ue8m0>) {
    out[0] = __uint_as_float(v.word[0] << 23 & 0x7f800000u),
    out[1] = __uint_as_float(v.word[0] << 15 & 0x7f800000u);
  } else {
    widen(v, out);
  }
}

template <Codes CODES, typename T>
struct Unpacked;

// A code in the low bits of the mantissa of 2^7 (bf16) or 2^10 (f16) is that number plus the code. The zero and the power of
// two are subtracted together, exactly.
template <typename T>
struct Unpacked<Codes::int4, T> {
  static constexpr u32 POWER = same<T, f16> ? 0x64006400u : 0x43004300u,
                       ONE = same<T, f16> ? 0x3c003c00u : 0x3f803f80u;

  // Returns what values() takes for a zero of 0 to 15: minus the sum of zero and power, twice.
  __device__ static __forceinline__ u32 shift_of(u32 zero) { return (zero * 0x10001u | POWER) ^ 0x80008000u; }
  // Sets a[j] to the values of pair j. `shift` belongs to row g, and `shift_8` to row g + 8.
  __device__ static __forceinline__ void values(u32 (&a)[4], u32 word, u32 shift, u32 shift_8) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      a[j] = multiply_add_pair<T>(and_or(word >> (4 * j), 0x000f000fu, POWER), ONE,
                                  j % 2 == 0 ? shift : shift_8);
  }
};

// The three bits at the border of exponent and mantissa are the value times a power of two, subnormal values included. The
// product with the inverse of that power is exact.
template <typename T>
struct Unpacked<Codes::e2m1, T> {
  static constexpr int BORDER = same<T, f16> ? 9 : 6;
  static constexpr u32 INVERSE = same<T, f16> ? 0x74007400u : 0x7e807e80u, BITS = 0x00070007u << BORDER;

  __device__ static __forceinline__ u32 shift_of(u32) { return 0; }
  __device__ static __forceinline__ void values(u32 (&a)[4], u32 word, u32, u32) {
    constexpr u32 SIGN = 0x80008000u;
    a[0] = (word & SIGN) | (moved<6, BORDER>(word) & BITS);
    a[1] = (moved<14, 15>(word) & SIGN) | (moved<9, BORDER>(word) & BITS);
    a[2] = (moved<12, 15>(word) & SIGN) | (moved<3, BORDER>(word) & BITS);
    a[3] = (moved<13, 15>(word) & SIGN) | (moved<0, BORDER>(word) & BITS);
#pragma unroll
    for (int j = 0; j < 4; ++j) a[j] = multiply_add_pair<T>(a[j], INVERSE, 0);
  }
};

}  // namespace kiln
