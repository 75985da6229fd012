// Python objects as the operands of an operator's call.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "arguments.hpp"

namespace kiln::python {

/// The kinds of operands, with the names that kiln_service_describe_operators() gives them.
enum class OperandKind : std::uint8_t { tensor, integer, boolean, number, numbers, dtype, choice };

/// The operands of one call, on the call's stack. Tensors of libraries with an exchange table (torch from 2.10 on)
/// and numbers allocate nothing. Every member function requires the GIL. Functions that return bool return false
/// with a Python exception.
class Operands {
 public:
  static constexpr std::size_t kMost = 64;

  explicit Operands(const char* operation) noexcept : operation_(operation) {}
  ~Operands() { Py_XDECREF(keep_); }
  Operands(const Operands&) = delete;

  /// Reads an operand. None is an operand that is not given.
  bool take(std::size_t i, OperandKind kind, const char* name, PyObject* object) noexcept;
  /// Reads an array's shape, strides and address into `out`. They live as long as the array and these operands.
  bool read(PyObject* array, const char* name, kiln_tensor* out) noexcept;

  const kiln_operand* data() const noexcept { return operands_; }
  const kiln_tensor& tensor(std::size_t i) const noexcept { return tensors_[i]; }
  std::size_t count() const noexcept { return count_; }
  const StreamSource& source() const noexcept { return source_; }
  /// The first tensor, or null. A borrowed reference.
  PyObject* first() const noexcept { return first_; }

 private:
  bool take_number(kiln_operand& out, const char* name, PyObject* object) noexcept;
  bool take_integer(kiln_operand& out, const char* name, PyObject* object, const char* expected) noexcept;
  bool take_numbers(kiln_operand& out, const char* name, PyObject* object) noexcept;
  bool take_text(kiln_operand& out, PyObject* object) noexcept;
  bool read_interface(PyObject* array, const char* name, kiln_tensor* out) noexcept;
  bool read_capsule(PyObject* array, bool is_torch, kiln_tensor* out) noexcept;
  bool locate(PyObject* array, const char* name, kiln_tensor* out) noexcept;
  bool fail(const char* name, PyObject* object, const char* expected) noexcept;
  bool keep(PyObject* object) noexcept;

  const char* const operation_;
  kiln_operand operands_[kMost];
  kiln_tensor tensors_[kMost];
  double numbers_[kMost];
  std::size_t count_ = 0, number_count_ = 0;
  StreamSource source_;
  Adapter unkept_;  // holds *source_.library when the table of adapters is full
  PyObject* first_ = nullptr;
  PyObject* keep_ = nullptr;  // a list of objects that must outlive the call
};

}  // namespace kiln::python
