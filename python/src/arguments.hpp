// Python objects as kernel arguments. Arrays become addresses, and the C ABI converts numbers.
// The stream is that of the arrays' library.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "dlpack.hpp"
#include "kiln/kiln.h"

namespace kiln::python {

/// How arrays of one Python type tell their address. A type is learnt at its first use and never released.
struct Adapter {
  enum class Kind { torch, exchange, cupy, cuda_array_interface, dlpack };
  PyTypeObject* type;
  Kind kind;
  const dlpack::ExchangeApi* api;  ///< for the kinds torch and exchange; torch before 2.10 has none
  bool readable;                   ///< torch: torch_tensor.hpp can read it
};

/// The stream of a launch follows from these.
struct StreamSource {
  const Adapter* library = nullptr;  ///< of the first array: its library tells the current stream
  int device = -1;                   ///< the ordinal of the arrays' device; -1: no array tells it
  std::uint64_t named = 0;           ///< by a __cuda_array_interface__; 0: none

  /// The stream of the launch. False with a Python exception. The first of these that exists decides:
  /// - `given`, the caller's integer or stream object, when it is neither null nor None
  /// - the current stream of the first array's library (torch, CuPy, or one with an exchange table)
  /// - the stream that an array's __cuda_array_interface__ names
  /// - the default stream
  bool choose(PyObject* given, CUstream* out) const noexcept;
  /// Notes the stream of a __cuda_array_interface__, a dictionary. `what` is the array, for errors. False with a
  /// Python exception.
  bool take_interface(PyObject* interface, const char* what) noexcept;
};

/// True when kernels may read memory of the host: accept_host_memory().
bool host_memory_is_accepted() noexcept;

/// The arguments of one launch, on the call's stack. Arrays of torch, numbers and None allocate nothing.
/// Every member function requires the GIL.
class Arguments {
 public:
  static constexpr std::size_t kMost = 128;

  Arguments() noexcept {}
  ~Arguments() { Py_XDECREF(keep_); }
  Arguments(const Arguments&) = delete;

  /// Reads `count` objects. False with a Python exception.
  bool take(PyObject* const* objects, std::size_t count) noexcept;
  /// As StreamSource::choose.
  bool stream(PyObject* given, CUstream* out) const noexcept { return source_.choose(given, out); }

  /// The ordinal of the device that the arrays lie on; -1 when no array tells it.
  int device() const noexcept { return source_.device; }
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
  StreamSource source_;
  Adapter unkept_;            // holds *source_.library when the table of adapters is full
  PyObject* keep_ = nullptr;  // a list of capsules that must outlive the launch
};

/// For tests with the fake driver, whose device memory is host memory.
void accept_host_memory(bool on) noexcept;

}  // namespace kiln::python
