#pragma once
#include <torch/stub.h>

namespace c10 {

/// A power of two: the value is 2^(x - 127), and 255 is a NaN.
struct alignas(1) Float8_e8m0fnu {
  uint8_t x;

  __host__ __device__ operator float() const {
    return __uint_as_float(x == 255 ? 0x7fc00000u : x == 0 ? 0x00400000u : static_cast<unsigned>(x) << 23);
  }
};

}  // namespace c10

namespace torch {
namespace headeronly {
using c10::Float8_e8m0fnu;
}  // namespace headeronly
}  // namespace torch
