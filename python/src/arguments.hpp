// Python objects as kernel arguments: arrays become addresses, numbers what the C ABI converts, and the
// stream is their library's.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "dlpack.hpp"
#include "kiln/kiln.h"

namespace kiln::python {

/// How arrays of one Python type tell their address. Types are learnt at their first argument and held for
/// good.
struct Adapter {
  enum class Kind { torch, exchange, cupy, cuda_array_interface, dlpack };
  PyTypeObject* type;
  Kind kind;
  const dlpack::ExchangeApi* api;  ///< of torch and exchange; torch before 2.10 has none
  bool readable;                   ///< torch: by torch_tensor.hpp
};

/// The arguments of one launch, on the stack of the call: nothing is allocated for arrays of torch, numbers
/// and None.
class Arguments {
 public:
  static constexpr std::size_t kMost = 128;

  Arguments() noexcept {}
  ~Arguments() { Py_XDECREF(keep_); }
  Arguments(const Arguments&) = delete;

  /// False with a Python exception.
  bool take(PyObject* const* objects, std::size_t count) noexcept;
  /// `given`: what the caller said (an integer or a stream object), or null: the current stream of the
  /// arrays' library, the stream that an array's __cuda_array_interface__ names, else the default stream.
  /// False with a Python exception.
  bool stream(PyObject* given, CUstream* out) noexcept;

  /// Of the arrays; -1: none of them says.
  int device() const noexcept { return device_; }
  const kiln_arg_type* types() const noexcept { return types_; }
  const void* const* data() const noexcept { return data_; }
  std::size_t count() const noexcept { return count_; }

 private:
  bool array(PyObject* object, const Adapter& adapter, std::size_t i) noexcept;
  bool by_library(PyObject* object, const Adapter& adapter, std::size_t i) noexcept;
  bool from_methods(PyObject* object, std::size_t i) noexcept;
  bool borrowed(PyObject* object, const dlpack::Tensor& tensor, std::size_t i) noexcept;
  bool from_cupy(PyObject* object, std::size_t i) noexcept;
  bool from_interface(PyObject* object, std::size_t i) noexcept;
  bool from_capsule(PyObject* object, std::size_t i) noexcept;
  bool other(PyObject* object, std::size_t i) noexcept;
  bool located(int device, std::size_t i) noexcept;
  void address(std::size_t i, std::uint64_t value) noexcept;

  union Slot {
    std::uint64_t address;
    std::int64_t integer;
    double real;
  };
  kiln_arg_type types_[kMost];
  const void* data_[kMost];
  Slot slots_[kMost];
  std::size_t count_ = 0;
  int device_ = -1;
  const Adapter* library_ = nullptr;  // whose current stream it is
  Adapter unkept_;                    // library_, where the table has no place for it
  std::uint64_t named_stream_ = 0;    // by a __cuda_array_interface__; 0: none
  PyObject* keep_ = nullptr;          // a list of what must outlive the launch
};

/// For tests with the fake driver, whose device memory is the host's.
void accept_host_memory(bool on) noexcept;

}  // namespace kiln::python
