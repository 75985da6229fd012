// An operator: from the tensors of a call to a launch ([bind] of the manifest).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/kernels/kernel_template.hpp"
#include "runtime/operator/arguments.hpp"
#include "runtime/operator/call_shape.hpp"

namespace kiln::runtime {

/// Thread-safe. It keeps its template, whose scope must outlive it.
class Operator {
 public:
  /// Throws Error(manifest) when the operator has more names than a call has room for.
  Operator(KernelTemplate& of, const source::Manifest& manifest, const source::BindSpec& spec);
  ~Operator();
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  /// Throws Error and CompileError (kiln_operator_call).
  void call(const kiln_call& call) const;

 private:
  /// A call that was checked and launched. A call of the same shape needs neither checks nor arithmetic.
  struct Remembered {
    CallShape shape;
    mutable std::atomic<const LoadedKernel*> kernel;
    mutable std::atomic<std::uint64_t> changes;  ///< of the template, when the kernel was found
    std::vector<std::uint64_t> storage;          ///< of the arguments that a launch gets
    std::vector<std::size_t> pointers;           ///< arguments that are tensors
    std::vector<kiln_tensor> wanted;             ///< of outputs that the allocator makes
    std::vector<std::vector<std::int64_t>> extents;
  };

  const Remembered* remembered(const kiln_call& call) const noexcept;
  bool launch_again(const Remembered& known, const kiln_call& call) const;
  void remember(const kiln_call& call, const LoadedKernel& kernel, std::uint64_t changes,
                const CallFrame& frame) const;
  bool is_left_out(std::size_t argument, const CallFrame& frame) const;
  void call_anew(const kiln_call& call) const;
  void launch(const kiln_call& call, const LoadedKernel& kernel, const void* const* data,
              std::size_t count) const;
  void make_again(std::size_t output, const kiln_tensor& wanted, const kiln_call& call,
                  kiln_tensor& out) const;
  void take_parameters(const CallFrame& frame, std::int64_t* values) const;
  /// Null for a template without a device, whose image is obtained.
  const LoadedKernel* make_ready(const std::int64_t* values, const kiln_call& call) const;
  std::vector<Value> values_of(const std::int64_t* values) const;
  void make_outputs(const kiln_call& call, CallFrame& frame) const;
  void make_output(std::size_t operand, const kiln_call& call, CallFrame& frame) const;
  void allocate(std::size_t operand, const kiln_tensor& wanted, const kiln_call& call,
                kiln_tensor& out) const;
  bool check_layouts(const kiln_call& call, CallFrame& frame) const;
  const source::BindOperand& operand(std::size_t i) const { return spec_.operands[i]; }

  KernelTemplate& template_;
  const source::Manifest& manifest_;
  const source::BindSpec& spec_;
  const OperandReader reader_;
  const ArgumentWriter writer_;
  std::vector<int> fixed_;  ///< slots of the kernel that expressions of outputs and arguments read
  std::vector<int> packed_parameters_;  ///< for each parameter up to the last given one: its entry, or -1
  /// The first calls of different shapes. Calls of further shapes are checked every time.
  mutable std::array<std::atomic<const Remembered*>, 8> remembered_{};
  mutable std::mutex mutex_;  ///< serialises changes of what is remembered
};

}  // namespace kiln::runtime
