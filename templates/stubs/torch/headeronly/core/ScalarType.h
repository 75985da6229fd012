// PyTorch's element types. Their values are PyTorch's, because host code passes them to kernels.
#pragma once
#include <torch/stub.h>

namespace c10 {

enum class ScalarType : int8_t {
  Byte,
  Char,
  Short,
  Int,
  Long,
  Half,
  Float,
  Double,
  ComplexHalf,
  ComplexFloat,
  ComplexDouble,
  Bool,
  QInt8,
  QUInt8,
  QInt32,
  BFloat16,
  QUInt4x2,
  QUInt2x4,
  Bits1x8,
  Bits2x4,
  Bits4x2,
  Bits8,
  Bits16,
  Float8_e5m2,
  Float8_e4m3fn,
  Float8_e5m2fnuz,
  Float8_e4m3fnuz,
  UInt16,
  UInt32,
  UInt64,
  Float8_e8m0fnu = 44,
  Float4_e2m1fn_x2,
};

}  // namespace c10

namespace torch {
namespace headeronly {
using c10::ScalarType;
}  // namespace headeronly
}  // namespace torch
