// FP8 conversions in integer arithmetic, for architectures without cvt.*.e4m3x2 and e5m2x2 (below sm_89).
//
// The results equal those instructions' results bit for bit: values are rounded to nearest even, and saturate
// to the largest finite value. Infinities saturate too; NaN becomes 0x7f.
// The formats are OCP's 8-bit floating point (OFP8). e4m3 has an exponent bias of 7, no infinity, and 448 as
// its largest value. e5m2 has a bias of 15, and 57344 as its largest finite value.
//
// The conversions of ue8m0, the scales of OCP's microscaling formats (MX), serve every architecture.
#pragma once
#include "kiln/types.cuh"

namespace kiln {
namespace fp8 {

// Returns the code nearest to the float whose IEEE binary32 pattern is `bits`. The format has MANTISSA stored
// mantissa bits and the exponent bias BIAS; LARGEST is the code of its largest finite value.
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
    // The distance from binary32's last bit to the last bit of a subnormal code.
    const int shift = 24 - BIAS - MANTISSA - exponent;
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

// Returns the smallest power of two that is at least the magnitude of the float whose pattern is `bits`, as
// cvt.rp.satfinite.ue8m0x2.f32 does. The result is between 2^-127 (code 0, also for 0) and 2^127 (code 254,
// also for infinity); NaN becomes 255. The sign is ignored.
__host__ __device__ constexpr u8 ue8m0_from_float_bits(u32 bits) {
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 255;
  if (magnitude <= 0x00400000u) return 0;  // 2^-127, which is subnormal in binary32
  const u32 code = (magnitude + 0x7fffffu) >> 23;
  return static_cast<u8>(code < 254u ? code : 254u);
}

// Returns the binary32 pattern of a ue8m0 code.
__host__ __device__ constexpr u32 ue8m0_to_float_bits(u8 bits) {
  if (bits == 0) return 0x00400000u;
  return bits == 255 ? 0x7fffffffu : static_cast<u32>(bits) << 23;
}

// These functions return binary16 patterns. An e5m2 code is the upper byte of its pattern. The pattern of an
// e4m3 code has a value 2^8 too small, because its exponent of bias 7 is read with bias 15. NaN stays NaN.
__host__ __device__ constexpr u16 e5m2_to_half_bits(u8 bits) { return static_cast<u16>(bits << 8); }
__host__ __device__ constexpr u16 e4m3_to_half_bits_over_256(u8 bits) {
  return (bits & 0x7f) == 0x7f ? 0x7fff : static_cast<u16>(((bits & 0x80) << 8) | ((bits & 0x7f) << 7));
}

}  // namespace fp8
}  // namespace kiln
