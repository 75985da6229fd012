#include "adapters.hpp"

#include <cstdio>
#include <cstring>

#include "errors.hpp"
#include "torch_tensor.hpp"

namespace kiln::python {

Adapter adapters[kAdapters];
std::size_t adapter_count = 0;

namespace {

/// The exchange table of major version 1, or null. torch 2.10 has it under an older name.
const dlpack::ExchangeApi* exchange_api(PyTypeObject* type) noexcept {
  for (const char* name : {"__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"}) {
    const Owned capsule(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
    auto* api = capsule
                    ? static_cast<dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"))
                    : nullptr;
    PyErr_Clear();
    while (api && api->major != 1) api = api->older;
    if (api && api->borrow && api->current_stream) return api;
  }
  return nullptr;
}

/// Also true for an instance of a subclass.
bool is_torch_tensor(PyObject* object) noexcept {
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const torch = modules ? PyDict_GetItemString(modules, "torch") : nullptr;
  const Owned type(torch ? PyObject_GetAttrString(torch, "Tensor") : nullptr);
  const int answer = type ? PyObject_IsInstance(object, type) : 0;
  PyErr_Clear();
  return answer == 1;
}

/// 1, 0, or -1 with a Python exception.
int has(PyObject* object, const char* attribute) noexcept {
  const Owned found(PyObject_GetAttrString(object, attribute));
  if (found) return 1;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
  return PyErr_Clear(), 0;
}

PyObject* number(PyObject* object, const char* attribute) noexcept {
  PyObject* const found = PyObject_GetAttrString(object, attribute);
  if (!found) PyErr_Clear();
  return found;
}

}  // namespace

const char* type_name(PyObject* object) noexcept {
  thread_local char text[128];
  const Owned type(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__module__"));
  const Owned name(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__qualname__"));
  const Owned whole(
      type && name ? PyUnicode_FromFormat("%U.%U", static_cast<PyObject*>(type), static_cast<PyObject*>(name))
                   : nullptr);
  const char* const found = whole ? PyUnicode_AsUTF8AndSize(whole, nullptr) : nullptr;
  PyErr_Clear();
  std::snprintf(text, sizeof text, "%s", found ? found : "object");
  return std::strncmp(text, "builtins.", 9) == 0 ? text + 9 : text;
}

const Adapter* learn_adapter(PyObject* object, Adapter* unkept) noexcept {
  PyTypeObject* const type = Py_TYPE(object);
  if (type == &PyLong_Type || type == &PyBool_Type) return nullptr;
  Adapter found{type, Adapter::Kind::exchange, exchange_api(type), false};
  if (is_torch_tensor(object)) {
    found.kind = Adapter::Kind::torch;
    found.readable = torch_tensor::readable(object);
  } else if (!found.api) {
    int answer = 0;
    if (std::strncmp(type_name(object), "cupy.", 5) == 0 && (answer = has(object, "data")) == 1)
      found.kind = Adapter::Kind::cupy;
    else if (answer == 0 && (answer = has(object, "__cuda_array_interface__")) == 1)
      found.kind = Adapter::Kind::cuda_array_interface;
    else if (answer == 0 && has(object, "__dlpack__") == 1)
      found.kind = Adapter::Kind::dlpack;
    else
      return nullptr;
  }
  if (adapter_count == kAdapters) return *unkept = found, unkept;
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  adapters[adapter_count] = found;
  return &adapters[adapter_count++];
}

bool stream_handle(PyObject* stream, void** out) noexcept {
  if (PyLong_Check(stream)) {
    *out = PyLong_AsVoidPtr(stream);
    return !PyErr_Occurred();
  }
  Owned protocol(PyObject_HasAttrString(stream, "__cuda_stream__")
                     ? PyObject_GetAttrString(stream, "__cuda_stream__")
                     : nullptr);
  if (protocol) {  // (version, handle); a method since the protocol's version 0 was final, a property before
    const Owned pair(PyCallable_Check(protocol) ? PyObject_CallNoArgs(protocol)
                                                : (Py_INCREF(protocol), static_cast<PyObject*>(protocol)));
    if (!pair) return false;
    if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2) {
      *out = PyLong_AsVoidPtr(PyTuple_GetItem(pair, 1));
      return !PyErr_Occurred();
    }
  }
  const Owned direct(number(stream, "cuda_stream"));
  const Owned pointer(direct ? nullptr : number(stream, "ptr"));
  PyObject* const handle = direct ? direct : pointer;
  if (!handle || !PyLong_Check(handle))
    return set_invalid("stream is a %s: expected an integer, a stream of torch, CuPy or cuda.core, or None",
                       type_name(stream)),
           false;
  *out = PyLong_AsVoidPtr(handle);
  return !PyErr_Occurred();
}

bool cupy_stream(void** out) noexcept {
  static PyObject* current = nullptr;  // never released
  if (!current) {
    const Owned module(PyImport_ImportModule("cupy.cuda"));
    if (!module || !(current = PyObject_GetAttrString(module, "get_current_stream"))) return false;
  }
  const Owned stream(PyObject_CallNoArgs(current));
  return stream && stream_handle(stream, out);
}

bool is_device_pointer(PyTypeObject* type) noexcept {
  static PyObject* known = nullptr;  // never released
  if (!known) {
    const Owned module(PyImport_ImportModule("kiln._values"));
    if (!module || !(known = PyObject_GetAttrString(module, "DevicePtr"))) return PyErr_Clear(), false;
  }
  return reinterpret_cast<PyObject*>(type) == known;
}

}  // namespace kiln::python
