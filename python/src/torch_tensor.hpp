// Reads the address of torch tensors through torch's stable C functions.
// That takes a tenth of the instructions that DLPack takes.
#pragma once

#include <Python.h>

#include <cstdint>

namespace kiln::python::torch_tensor {

/// Functions of libtorch_cpu.so (AOTInductor's C ABI). `tensor` is an at::Tensor*. They return 0 on success.
struct Api {
  int (*data_ptr)(void* tensor, void** out);
  int (*device_type)(void* tensor, std::int32_t* out);
  int (*device_index)(void* tensor, std::int32_t* out);
};
extern Api api;
inline constexpr std::int32_t kCpu = 0, kCuda = 1;

/// The at::Tensor* of a Python tensor. REQUIRES: readable() was true for a tensor of this type.
inline void* handle(PyObject* tensor) noexcept { return reinterpret_cast<char*>(tensor) + sizeof(PyObject); }

/// True when tensors of this tensor's type can be read through Api. That needs two things:
/// - libtorch_cpu.so has the functions
/// - the at::Tensor follows the object's header, as from torch 2.11 on; this tensor's own `_cdata` must
///   confirm it
bool readable(PyObject* tensor) noexcept;

/// torch's current stream, for a torch without an exchange table. False with a Python exception.
bool current_stream(int device, void** out) noexcept;

}  // namespace kiln::python::torch_tensor
