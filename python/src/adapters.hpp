// What is known of the libraries whose arrays and streams come as arguments.
#pragma once

#include "arguments.hpp"

namespace kiln::python {

/// A reference of ours; null when the call that made it failed.
class Owned {
 public:
  explicit Owned(PyObject* object) noexcept : object_(object) {}
  ~Owned() { Py_XDECREF(object_); }
  Owned(const Owned&) = delete;
  operator PyObject*() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_;
};

inline constexpr std::size_t kAdapters = 16;
extern Adapter adapters[kAdapters];  // guarded by the GIL
extern std::size_t adapter_count;

inline const Adapter* known_adapter(PyTypeObject* type) noexcept {
  for (std::size_t i = 0; i < adapter_count; ++i)
    if (adapters[i].type == type) return &adapters[i];
  return nullptr;
}

/// Null when its type is no array's; then, if asking failed, with a Python exception. `unkept` is where it is
/// when the table is full.
const Adapter* learn_adapter(PyObject* object, Adapter* unkept) noexcept;

/// Of an integer, an object with __cuda_stream__ (cuda.core), cuda_stream (torch) or ptr (CuPy). False with a
/// Python exception.
bool stream_handle(PyObject* stream, void** out) noexcept;
/// CuPy's current stream.
bool cupy_stream(void** out) noexcept;
/// Whether it is kiln.DevicePtr.
bool is_device_pointer(PyTypeObject* type) noexcept;
/// "torch.Tensor" or the like, until the next call of this thread.
const char* type_name(PyObject* object) noexcept;

}  // namespace kiln::python
