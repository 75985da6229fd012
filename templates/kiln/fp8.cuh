// FP8 conversions in integer arithmetic, for architectures without cvt.*.e4m3x2 / e5m2x2 (below sm_89).
// Results equal the instructions' bit for bit: round to nearest even, saturate to the largest finite value (infinities too), NaN to 0x7f.
// Formats: OCP 8-bit floating point (OFP8): e4m3 has bias 7, no infinity, largest 448; e5m2 has bias 15, largest finite 57344.
#pragma once
#include "kiln/types.cuh"

namespace kiln {
namespace fp8 {

// MANTISSA stored bits, exponent BIAS, LARGEST finite code; `bits` is an IEEE binary32 pattern.
template <int MANTISSA, int BIAS, u32 LARGEST>
__host__ __device__ constexpr u8 from_float_bits(u32 bits) {
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  const u8 sign = static_cast<u8>((bits >> 24) & 0x80u);
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  u32 code = 0;
  if (exponent >= 1 - BIAS) {
    constexpr int SHIFT = 23 - MANTISSA;
    const u32 rebased = magnitude - (static_cast<u32>(127 - BIAS) << 23);
    code = (rebased + (1u << (SHIFT - 1)) - 1u + ((rebased >> SHIFT) & 1u)) >> SHIFT;
    if (code > LARGEST) code = LARGEST;
  } else {
    const int shift =
        24 - BIAS - MANTISSA - exponent;  // from binary32's unit in the last place to the subnormal step
    if (shift <= 24) {
      const u32 significand = (magnitude & 0x7fffffu) | 0x800000u;
      code = (significand + (1u << (shift - 1)) - 1u + ((significand >> shift) & 1u)) >> shift;
    }
  }
  return static_cast<u8>(sign | code);
}

__host__ __device__ constexpr u8 e4m3_from_float_bits(u32 bits) { return from_float_bits<3, 7, 0x7eu>(bits); }
__host__ __device__ constexpr u8 e5m2_from_float_bits(u32 bits) {
  return from_float_bits<2, 15, 0x7bu>(bits);
}

// binary16 patterns. e5m2 is the upper byte of one; e4m3's is 2^8 too small (exponent bias 7 read as 15), NaN excepted.
__host__ __device__ constexpr u16 e5m2_to_half_bits(u8 bits) { return static_cast<u16>(bits << 8); }
__host__ __device__ constexpr u16 e4m3_to_half_bits_over_256(u8 bits) {
  return (bits & 0x7f) == 0x7f ? 0x7fff : static_cast<u16>(((bits & 0x80) << 8) | ((bits & 0x7f) << 7));
}

}  // namespace fp8
}  // namespace kiln
