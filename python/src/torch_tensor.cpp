#include "torch_tensor.hpp"

#include <dlfcn.h>

#include "adapters.hpp"

namespace kiln::python::torch_tensor {

Api api{};

namespace {

template <class F>
bool take(void* library, const char* name, F*& out) noexcept {
  return (out = reinterpret_cast<F*>(::dlsym(library, name))) != nullptr;
}

bool take_api() noexcept {
  static const bool taken = [] {
    void* const library = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    return library && take(library, "aoti_torch_get_data_ptr", api.data_ptr) &&
           take(library, "aoti_torch_get_device_type", api.device_type) &&
           take(library, "aoti_torch_get_device_index", api.device_index);
  }();
  return taken;
}

/// True from torch 2.11 on. Before, a pointer to an at::Tensor may lie there, or nothing that may be read.
bool is_new_enough() noexcept {
  const Owned module(PyImport_ImportModule("torch.torch_version"));
  const Owned version(module ? PyObject_GetAttrString(module, "__version__") : nullptr);
  const Owned first(version ? Py_BuildValue("(ii)", 2, 11) : nullptr);
  const int answer = first ? PyObject_RichCompareBool(version, first, Py_GE) : -1;
  PyErr_Clear();
  return answer == 1;
}

}  // namespace

bool readable(PyObject* tensor) noexcept {
#ifdef Py_GIL_DISABLED
  return static_cast<void>(tensor), false;
#else
  if (!is_new_enough() || !take_api()) return false;
  const Owned address(PyObject_GetAttrString(tensor, "_cdata"));
  void* const implementation = address ? PyLong_AsVoidPtr(address) : nullptr;
  PyErr_Clear();
  return implementation && *static_cast<void**>(handle(tensor)) == implementation;
#endif
}

bool current_stream(int device, void** out) noexcept {
  static PyObject* current = nullptr;  // never released
  if (!current) {
    const Owned module(PyImport_ImportModule("torch._C"));
    if (!module || !(current = PyObject_GetAttrString(module, "_cuda_getCurrentRawStream"))) return false;
  }
  const Owned stream(PyObject_CallFunction(current, "i", device));
  if (!stream) return false;
  *out = PyLong_AsVoidPtr(stream);
  return !PyErr_Occurred();
}

}  // namespace kiln::python::torch_tensor
