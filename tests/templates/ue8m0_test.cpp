// The conversions of ue8m0 in kiln/fp8.cuh, compiled for the host.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#define __host__
#define __device__
#include "templates/kiln/fp8.cuh"
#undef __host__
#undef __device__

namespace kiln {
namespace {

float value_of(int code) {
  return std::bit_cast<float>(fp8::ue8m0_to_float_bits(static_cast<std::uint8_t>(code)));
}
int code_of(float value) { return fp8::ue8m0_from_float_bits(std::bit_cast<std::uint32_t>(value)); }

TEST(Ue8m0, EveryCodeIsItsPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(value_of(code), std::ldexp(1.0f, code - 127)) << code;
    EXPECT_EQ(code_of(value_of(code)), code);
    EXPECT_EQ(code_of(-value_of(code)), code) << "the sign is ignored";
  }
  EXPECT_TRUE(std::isnan(value_of(255)));
}

TEST(Ue8m0, WhatLiesBetweenTwoPowersIsRoundedUp) {
  for (int code = 0; code < 254; ++code) {
    EXPECT_EQ(code_of(std::nextafter(value_of(code), 4.0f * value_of(code))), code + 1) << code;
    EXPECT_EQ(code_of(std::nextafter(value_of(code + 1), 0.0f)), code + 1) << code;
  }
}

TEST(Ue8m0, ValuesOutOfItsRangeSaturateAndNanStaysNan) {
  using Limits = std::numeric_limits<float>;
  EXPECT_EQ(code_of(0.0f), 0);
  EXPECT_EQ(code_of(Limits::denorm_min()), 0);
  EXPECT_EQ(code_of(Limits::max()), 254);
  EXPECT_EQ(code_of(Limits::infinity()), 254);
  EXPECT_EQ(code_of(-Limits::infinity()), 254);
  EXPECT_EQ(code_of(Limits::quiet_NaN()), 255);
}

}  // namespace
}  // namespace kiln
