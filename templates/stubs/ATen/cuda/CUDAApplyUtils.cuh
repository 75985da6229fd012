#pragma once
#include <ATen/ceil_div.h>

namespace at {
namespace cuda {
template <class T>
__host__ __device__ constexpr T ATenCeilDiv(T a, T b) {
  return (a + b - 1) / b;
}
}  // namespace cuda
}  // namespace at
