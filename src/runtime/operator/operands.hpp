// The operands of a call: read, checked against the signature, and turned into the numbers that expressions read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/kernels/target.hpp"
#include "runtime/operator/frame.hpp"

namespace kiln::runtime {

/// Immutable, thread-safe. Every function may throw Error(invalid_argument) that names operator and operand.
class OperandReader {
 public:
  /// All arguments must outlive it. Throws Error(manifest) when a call has no room for all names.
  OperandReader(const Target& target, const source::Manifest& manifest, const source::BindSpec& spec);

  /// Reads the inputs, and the outputs that the caller gives.
  void read(const kiln_call& call, CallFrame& frame) const;
  /// Checks inputs whose dtype is a parameter that another input gives, or its default. REQUIRES: the frame has the
  /// parameters of the kernel.
  void check_late_dtypes(const CallFrame& frame) const;
  /// Takes the measures of outputs. REQUIRES: all outputs are there.
  void read_outputs(CallFrame& frame) const;
  /// Takes all measures again, after tensors were replaced by copies.
  void read_again(CallFrame& frame) const;
  /// Checks dtype and shape.
  void check_tensor(std::size_t operand, const CallFrame& frame) const;
  /// REQUIRES: the signature says a dtype.
  Dtype wanted_dtype(std::size_t operand, const CallFrame& frame) const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void read_all(const kiln_call& call, CallFrame& frame) const;
  void read_tensor(std::size_t operand, const kiln_operand& given, CallFrame& frame) const;
  void read_scalar(std::size_t operand, const kiln_operand& given, CallFrame& frame) const;
  void check_dtype(std::size_t operand, const CallFrame& frame) const;
  void check_shape(std::size_t operand, const CallFrame& frame) const;
  std::int64_t integer_of(std::size_t operand, const kiln_operand& given) const;
  void take_fallbacks(CallFrame& frame) const;
  void take_named(CallFrame& frame) const;
  void take_measures(std::size_t from, std::size_t to, CallFrame& frame) const;
  std::int64_t measure_of(const source::BindMeasure& measure, const CallFrame& frame) const;
  bool has_shape(const kiln_tensor& tensor, const source::BindShape& shape, const CallFrame& frame) const;
  bool has_leading(const kiln_tensor& tensor, int named, const CallFrame& frame) const;
  [[noreturn]] void fail_shape(std::size_t operand, const CallFrame& frame) const;
  void check_requirements(const CallFrame& frame) const;
  const source::BindOperand& operand(std::size_t i) const { return spec_.operands[i]; }

  const Target& target_;
  const source::Manifest& manifest_;
  const source::BindSpec& spec_;
  std::vector<std::size_t> order_;  ///< measures of input tensors, then of outputs
  std::size_t input_measures_ = 0;  ///< of `order_`
  /// For each operand, the slot of a scalar's value, or of the dtype that a tensor must have; -1: none.
  std::array<int, kMaxOperands> slots_{};
  std::vector<std::size_t> late_;  ///< inputs that check_late_dtypes() checks
};

}  // namespace kiln::runtime
