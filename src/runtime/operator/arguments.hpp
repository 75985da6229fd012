// The arguments of a kernel, from the operands of a call.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/operator/operands.hpp"

namespace kiln::runtime {

/// Immutable, thread-safe.
class ArgumentWriter {
 public:
  /// All arguments must outlive it.
  ArgumentWriter(const OperandReader& reader, const source::Manifest& manifest, const source::BindSpec& spec);

  /// The arguments that a launch gets. The kernel's defaults stand for the rest.
  std::size_t count() const noexcept { return count_; }
  const kiln_arg_type* types() const noexcept { return types_.data(); }
  /// Writes all arguments but the addresses. Throws Error(invalid_argument) for a number that does not fit.
  void write(CallFrame& frame) const;
  void write_addresses(CallFrame& frame) const;
  /// True when the kernel reads or writes a tensor of these strides. REQUIRES: the arguments were written.
  bool suits(const source::BindLayout& layout, const kiln_tensor& tensor, const CallFrame& frame) const;

 private:
  void put_integer(std::size_t argument, std::int64_t value, CallFrame& frame) const;
  void take_number(std::size_t argument, CallFrame& frame) const;

  const OperandReader& reader_;
  const source::Manifest& manifest_;
  const source::BindSpec& spec_;
  std::size_t count_ = 0;
  std::array<kiln_arg_type, source::kMaxArguments> types_{};
};

}  // namespace kiln::runtime
