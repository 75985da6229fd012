#pragma once
#include <torch/stub.h>

namespace c10 {

/// Two floats of four bits each in one byte.
struct alignas(1) Float4_e2m1fn_x2 {
  uint8_t val_;
};

}  // namespace c10

namespace torch {
namespace headeronly {
using c10::Float4_e2m1fn_x2;
}  // namespace headeronly
}  // namespace torch
