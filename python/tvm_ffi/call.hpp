// A kiln operator as a function of tvm-ffi: values become operands, and allocated outputs become the result.
#pragma once

#include <string>
#include <vector>

#include "abi.hpp"

namespace kiln::tvm_ffi {

/// The functions of libkiln that a call needs.
struct Library {
  decltype(&kiln_operator_call) call = nullptr;
  decltype(&kiln_last_error) last_error = nullptr;
};

/// Which operand gets which argument. The text form is
///
///     TEMPLATE.OPERATOR|INPUT,...|OUTPUT,...|ARGUMENT,...|OPERAND=CONSTANT,...
///
/// ARGUMENT is the name of an operand, two names joined by '+', or '-' for an argument that is ignored.
/// CONSTANT is i:INTEGER, f:NUMBER or t:TEXT. python/kiln/tvm_ffi.py writes the text.
struct Signature {
  struct Constant {
    std::size_t operand;
    kiln_operand value;
  };
  std::vector<char> text;             ///< ends with a zero byte; constants point into it
  std::string name;                   ///< TEMPLATE.OPERATOR
  std::string operator_;              ///< without its template, for messages
  std::vector<std::string> operands;  ///< inputs, then outputs
  std::size_t inputs = 0;
  std::vector<std::vector<std::size_t>> arguments;
  std::vector<Constant> constants;

  /// Throws std::invalid_argument for a text that is no signature.
  static Signature parse(const std::string& text);
  /// True when a description of the operator, as of kiln_service_describe_operators(), has these operands in this order.
  bool matches(const char* description) const;
};

/// Raises tvm-ffi's error. Returns -1.
int raise(const char* kind, const std::string& message) noexcept;

class Function {
 public:
  static constexpr std::size_t kMostOperands = 64;
  static constexpr int kDevices = 64;

  Function(Signature signature, Library library) noexcept
      : signature_(std::move(signature)), library_(library) {}
  Function(const Function&) = delete;
  virtual ~Function() = default;

  /// A safe call of tvm-ffi: 0, or -1 with a raised error. The result is None when the caller gave all outputs, else
  /// the tensor that was allocated, or an array of them. Launches on the caller's stream of the first CUDA tensor.
  int call(const Value* arguments, std::int32_t count, Value* result) noexcept;

  const Signature& signature() const noexcept { return signature_; }

 protected:
  /// The operator of a device, whose context is current. Null with a raised error.
  /// end() gets what a successful begin() stores in *lease.
  virtual kiln_operator* begin(int device, void** lease) noexcept = 0;
  virtual void end(void*) noexcept {}
  const Library& library() const noexcept { return library_; }

 private:
  const Signature signature_;
  const Library library_;
};

}  // namespace kiln::tvm_ffi
