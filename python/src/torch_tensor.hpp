// torch's tensors without DLPack: their address through torch's stable C functions, at a tenth of the
// instructions.
#pragma once

#include <Python.h>

#include <cstdint>

namespace kiln::python::torch_tensor {

/// Functions of libtorch_cpu.so (AOTInductor's C ABI); a handle is an at::Tensor*. 0: done.
struct Api {
  int (*data_ptr)(void* tensor, void** out);
  int (*device_type)(void* tensor, std::int32_t* out);
  int (*device_index)(void* tensor, std::int32_t* out);
};
extern Api api;
inline constexpr std::int32_t kCpu = 0, kCuda = 1;

/// The at::Tensor of a Python tensor of a type that `readable` was true for.
inline void* handle(PyObject* tensor) noexcept { return reinterpret_cast<char*>(tensor) + sizeof(PyObject); }

/// Whether tensors of this one's type can be read so: the functions are there, and the at::Tensor lies behind
/// the object's head, as it does from torch 2.11 on, and as this tensor's own `_cdata` confirms.
bool readable(PyObject* tensor) noexcept;

/// torch's current stream, where it has no exchange table. False with a Python exception.
bool current_stream(int device, void** out) noexcept;

}  // namespace kiln::python::torch_tensor
