// bf16 on the host, as 16 bits.
#pragma once

#include <cstdint>
#include <cstring>

struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds to nearest, ties to even. REQUIRES: no NaN.
  explicit BFloat16(float value) {
    std::uint32_t u = 0;
    std::memcpy(&u, &value, sizeof u);
    bits = static_cast<std::uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  explicit operator float() const {
    const std::uint32_t u = std::uint32_t{bits} << 16;
    float out = 0;
    std::memcpy(&out, &u, sizeof out);
    return out;
  }
  explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
};
