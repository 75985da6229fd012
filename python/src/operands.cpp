#include "operands.hpp"

#include <cstring>

#include "adapters.hpp"
#include "errors.hpp"

namespace kiln::python {
namespace {

static_assert(sizeof(dlpack::Tensor) == sizeof(kiln_tensor), "both have DLPack's layout");

constexpr const char* kExpected[] = {
    "an array of a CUDA device", "an integer",      "a boolean",           "a number",
    "a list of numbers",         "an element type", "the name of a choice"};

/// A text that kiln has for an element type such as torch.bfloat16. A borrowed reference; null with an exception.
PyObject* dtype_text(PyObject* object) noexcept {
  static PyObject* const known = PyDict_New();  // never released: libraries have few types
  if (!known) return nullptr;
  if (PyObject* const found = PyDict_GetItemWithError(known, object)) return found;
  if (PyErr_Occurred()) return nullptr;
  const Owned module(PyImport_ImportModule("kiln._values"));
  const Owned text(module ? PyObject_CallMethod(module, "parameter_text", "O", object) : nullptr);
  return text && PyDict_SetItem(known, object, text) == 0 ? PyDict_GetItemWithError(known, object) : nullptr;
}

/// The numbers of a tuple such as a shape. False with a Python exception.
bool numbers_of(PyObject* tuple, std::int64_t* out, Py_ssize_t count) noexcept {
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Owned entry(PySequence_GetItem(tuple, i));
    if (!entry) return false;
    out[i] = PyLong_AsLongLong(entry);
    if (out[i] == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

}  // namespace

bool Operands::take(std::size_t i, OperandKind kind, const char* name, PyObject* object) noexcept {
  for (; count_ <= i; ++count_) operands_[count_] = {};
  kiln_operand& out = operands_[i];
  if (object == Py_None) return true;
  switch (kind) {
    case OperandKind::tensor:
      if (!read(object, name, &tensors_[i])) return false;
      if (!first_) first_ = object;
      out.kind = KILN_OPERAND_TENSOR, out.tensor = &tensors_[i];
      return true;
    case OperandKind::number:
      return take_number(out, name, object);
    case OperandKind::integer:
    case OperandKind::boolean:
      return take_integer(out, name, object, kExpected[static_cast<int>(kind)]);
    case OperandKind::numbers:
      return take_numbers(out, name, object);
    case OperandKind::dtype: {
      PyObject* const text = PyUnicode_Check(object) ? object : dtype_text(object);
      if (text) return take_text(out, text);
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
      PyErr_Clear();
      return fail(name, object, kExpected[static_cast<int>(kind)]);
    }
    case OperandKind::choice:
      if (PyUnicode_Check(object)) return take_text(out, object);
  }
  return fail(name, object, kExpected[static_cast<int>(kind)]);
}

bool Operands::take_number(kiln_operand& out, const char* name, PyObject* object) noexcept {
  out.kind = KILN_OPERAND_FLOAT;
  out.number = PyFloat_AsDouble(object);
  if (out.number != -1 || !PyErr_Occurred()) return true;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
  PyErr_Clear();
  return fail(name, object, "a number");
}

bool Operands::take_integer(kiln_operand& out, const char* name, PyObject* object,
                            const char* expected) noexcept {
  out.kind = KILN_OPERAND_INTEGER;
  if (PyBool_Check(object)) return out.integer = object == Py_True, true;
  const Owned number(PyNumber_Index(object));
  if (!number) return PyErr_Clear(), fail(name, object, expected);
  out.integer = PyLong_AsLongLong(number);
  if (out.integer != -1 || !PyErr_Occurred()) return true;
  PyErr_Clear();
  return set_invalid("%s: %s does not fit 64 bits", operation_, name), false;
}

bool Operands::take_numbers(kiln_operand& out, const char* name, PyObject* object) noexcept {
  const Owned list(PySequence_Tuple(object));
  if (!list) return PyErr_Clear(), fail(name, object, "a list of numbers");
  const auto count = static_cast<std::size_t>(PyTuple_Size(list));
  if (number_count_ + count > kMost)
    return set_invalid("%s: %s has %zu numbers, which is too many", operation_, name, count), false;
  out.kind = KILN_OPERAND_FLOATS, out.numbers = &numbers_[number_count_],
  out.count = static_cast<std::int32_t>(count);
  for (std::size_t i = 0; i < count; ++i) {
    kiln_operand one{};
    if (!take_number(one, name, PyTuple_GetItem(list, static_cast<Py_ssize_t>(i)))) return false;
    numbers_[number_count_++] = one.number;
  }
  return true;
}

bool Operands::take_text(kiln_operand& out, PyObject* object) noexcept {
  Py_ssize_t size = 0;
  out.text = PyUnicode_AsUTF8AndSize(object, &size);
  out.kind = KILN_OPERAND_TEXT, out.count = static_cast<std::int32_t>(size);
  return out.text != nullptr;
}

// ---- arrays

bool Operands::read(PyObject* array, const char* name, kiln_tensor* out) noexcept {
  const Adapter* adapter = known_adapter(Py_TYPE(array));
  if (!adapter) {
    Adapter unkept;
    adapter = learn_adapter(array, source_.library ? &unkept : &unkept_);
    if (!adapter) return PyErr_Occurred() ? false : fail(name, array, kExpected[0]);
    if (adapter == &unkept)
      return read_capsule(array, adapter->kind == Adapter::Kind::torch, out) && locate(array, name, out);
  }
  if (!source_.library) source_.library = adapter;
  if (adapter->api) {
    if (adapter->api->borrow(array, reinterpret_cast<dlpack::Tensor*>(out)) != 0) return false;
  } else if (adapter->kind == Adapter::Kind::cuda_array_interface) {
    if (!read_interface(array, name, out)) return false;
  } else if (!read_capsule(array, adapter->kind == Adapter::Kind::torch, out)) {
    return false;
  }
  return locate(array, name, out);
}

/// Checks where the array lies. With accept_host_memory() memory of the host passes for a device's.
bool Operands::locate(PyObject* array, const char* name, kiln_tensor* out) noexcept {
  if (out->device_type == dlpack::kCpu && host_memory_is_accepted()) {
    out->device_type = dlpack::kCuda, out->device_id = 0;
    return true;  // it is on no device of its library, which therefore has no stream for it
  }
  if (out->device_type != dlpack::kCuda && out->device_type != dlpack::kCudaManaged) {
    if (out->device_type != dlpack::kCudaHost)
      return set_invalid("%s: %s, a %s, lies on no CUDA device", operation_, name, type_name(array)), false;
    return true;
  }
  if (source_.device < 0) source_.device = out->device_id;
  if (source_.device == out->device_id) return true;
  return set_invalid("%s: %s lies on device %d, an earlier operand on device %d", operation_, name,
                     out->device_id, source_.device),
         false;
}

bool Operands::read_capsule(PyObject* array, bool is_torch, kiln_tensor* out) noexcept {
  const Owned method(PyObject_GetAttrString(array, "__dlpack__"));
  if (!method) return false;
  PyObject* made = nullptr;
  if (is_torch) {  // -1: torch must not synchronise, since the launch is on its current stream
    const Owned none(PyTuple_New(0)), named(Py_BuildValue("{s:i}", "stream", -1));
    made = none && named ? PyObject_Call(method, none, named) : nullptr;
  } else {
    made = PyObject_CallNoArgs(method);
  }
  const Owned owned(made);
  if (!owned || !keep(owned)) return false;
  if (PyCapsule_IsValid(owned, "dltensor_versioned")) {
    const auto* const from =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(owned, "dltensor_versioned"));
    std::memcpy(out, &from->tensor, sizeof *out);
    return true;
  }
  const void* const tensor = PyCapsule_GetPointer(owned, "dltensor");
  if (tensor) std::memcpy(out, tensor, sizeof *out);
  return tensor != nullptr;
}

bool Operands::read_interface(PyObject* array, const char* name, kiln_tensor* out) noexcept {
  const Owned interface(PyObject_GetAttrString(array, "__cuda_array_interface__"));
  if (!interface && PyErr_ExceptionMatches(PyExc_AttributeError))  // it has no type for fp8 and bf16
    return PyErr_Clear(), read_capsule(array, false, out);
  if (!interface) return false;
  const auto item = [&](const char* key) {
    return PyDict_Check(interface) ? PyDict_GetItemString(interface, key) : nullptr;
  };
  PyObject *const data = item("data"), *const shape = item("shape"), *const type = item("typestr"),
                  *const strides = item("strides");
  const char* const text = type && PyUnicode_Check(type) ? PyUnicode_AsUTF8AndSize(type, nullptr) : nullptr;
  const Py_ssize_t rank = shape && PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
  if (!data || !PyTuple_Check(data) || rank < 0 || !text || std::strlen(text) < 3)
    return set_invalid("%s: the __cuda_array_interface__ of %s lacks data, shape or typestr", operation_,
                       name),
           false;
  *out = {};
  const Owned numbers(PyBytes_FromStringAndSize(nullptr, 2 * 8 * (rank + 1)));
  if (!numbers || !keep(numbers)) return false;
  auto* const extents = reinterpret_cast<std::int64_t*>(PyBytes_AsString(numbers));
  const std::int64_t bytes = std::strtol(text + 2, nullptr, 10);
  constexpr char kCodes[] = "iuf";
  const char* const code = std::strchr(kCodes, text[1] == 'b' ? 'u' : text[1]);
  if (!code || bytes < 1 || bytes > 8)
    return set_invalid("%s: %s has elements of type %s, which kiln does not know", operation_, name, text),
           false;
  out->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  out->device_type = dlpack::kCuda, out->device_id = source_.device < 0 ? 0 : source_.device;
  out->ndim = static_cast<std::int32_t>(rank);
  out->dtype_code = static_cast<std::uint8_t>(code - kCodes),
  out->dtype_bits = static_cast<std::uint8_t>(bytes * 8);
  out->dtype_lanes = 1, out->shape = extents;
  if (PyErr_Occurred() || !numbers_of(shape, extents, rank)) return false;
  if (strides && strides != Py_None) {  // in bytes there
    if (!numbers_of(strides, extents + rank, rank)) return false;
    for (Py_ssize_t i = 0; i < rank; ++i) {
      if (extents[rank + i] % bytes != 0)
        return set_invalid("%s: %s has a stride of %lld bytes, no multiple of its element's %lld", operation_,
                           name, static_cast<long long>(extents[rank + i]), static_cast<long long>(bytes)),
               false;
      extents[rank + i] /= bytes;
    }
    out->strides = extents + rank;
  }
  return source_.take_interface(interface, name);
}

bool Operands::keep(PyObject* object) noexcept {
  return (keep_ || (keep_ = PyList_New(0))) && PyList_Append(keep_, object) == 0;
}

bool Operands::fail(const char* name, PyObject* object, const char* expected) noexcept {
  return set_invalid("%s: %s is a %s, expected %s", operation_, name, type_name(object), expected), false;
}

}  // namespace kiln::python
