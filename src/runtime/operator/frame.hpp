// The working memory of one call of an operator.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/kernels/ready_table.hpp"
#include "runtime/launch/kernel_description.hpp"
#include "runtime/operator/tensor.hpp"

namespace kiln::runtime {

using source::kMaxOperands;
inline constexpr std::size_t kMaxMeasures = 256;
/// The value of a scalar that is not given, and of the dtype of a tensor that is not given.
inline constexpr std::int64_t kNoValue = PackedParameters::kUnset;

/// It is large, and is written only where a call needs it.
struct CallFrame {
  std::array<const kiln_tensor*, kMaxOperands> tensors;  ///< null: not given, or no tensor
  std::array<kiln_tensor, kMaxOperands> made;            ///< outputs and copies that the allocator has made
  std::array<std::int64_t, kMaxRank * kMaxOperands> extents, strides;  ///< of `made`
  std::uint64_t given = 0;                                             ///< bit i: the call gives operand i
  std::array<double, kMaxOperands> numbers;
  std::array<const double*, kMaxOperands> lists;  ///< of `numbers` operands; null: not given
  std::array<std::int64_t, kMaxSlots + kMaxMeasures> slots;
  std::array<std::uint64_t, source::kMaxArguments> storage;
  std::array<const void*, source::kMaxArguments> data;

  bool is_given(std::size_t operand) const noexcept { return given >> operand & 1; }
};

}  // namespace kiln::runtime
