// How arrays and streams of Python libraries are read. Every function here requires the GIL.
#pragma once

#include "arguments.hpp"

namespace kiln::python {

/// Owns one reference, or null when the call that made the reference failed.
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

/// Finds out how the object's type tells its address, and keeps that in the table.
/// When the table is full, the adapter is written to `unkept` and that is returned.
/// Null when the type is no array type. Null with a Python exception when the question failed.
const Adapter* learn_adapter(PyObject* object, Adapter* unkept) noexcept;

/// Reads the handle of a stream: an integer, or an object with __cuda_stream__ (cuda.core), cuda_stream
/// (torch) or ptr (CuPy). False with a Python exception.
bool stream_handle(PyObject* stream, void** out) noexcept;
/// Reads CuPy's current stream. False with a Python exception.
bool cupy_stream(void** out) noexcept;
/// True when the type is kiln.DevicePtr.
bool is_device_pointer(PyTypeObject* type) noexcept;
/// The type's name, such as "torch.Tensor". Valid until this thread's next call.
const char* type_name(PyObject* object) noexcept;

}  // namespace kiln::python
