#include "arguments.hpp"

#include <string>

#include "adapters.hpp"
#include "errors.hpp"
#include "torch_tensor.hpp"

namespace kiln::python {
namespace {

bool host_memory_accepted = false;

constexpr kiln_arg_type kPointer{KILN_ARG_POINTER, 8}, kSigned{KILN_ARG_SIGNED, 8},
    kUnsigned{KILN_ARG_UNSIGNED, 8}, kFloat{KILN_ARG_FLOAT, 8};

bool has_elements(const dlpack::Tensor& tensor) noexcept {
  for (std::int32_t i = 0; i < tensor.dimensions; ++i)
    if (tensor.shape[i] == 0) return false;
  return true;
}

/// The address of a kiln.DevicePtr. False with a Python exception.
/// The signed conversion is tried first: it takes a third of the unsigned conversion's time.
bool device_address(PyObject* object, std::uint64_t* out) noexcept {
  int beyond = 0;
  const long long quick = PyLong_AsLongLongAndOverflow(object, &beyond);
  *out = quick >= 0 ? static_cast<std::uint64_t>(quick) : PyLong_AsUnsignedLongLong(object);
  return quick >= 0 || !PyErr_Occurred();
}

}  // namespace

void accept_host_memory(bool on) noexcept { host_memory_accepted = on; }
bool host_memory_is_accepted() noexcept { return host_memory_accepted; }

inline void Arguments::address(std::size_t i, std::uint64_t value) noexcept {
  types_[i] = kPointer;
  slots_[i].address = value;
}

/// The quick path for torch tensors on a device, which most arrays are. by_library() reads all others.
[[gnu::always_inline]] inline bool Arguments::array(PyObject* object, const Adapter& adapter,
                                                    std::size_t i) noexcept {
  if (!source_.library) source_.library = &adapter;
  if (!adapter.readable) return by_library(object, adapter, i);
  void* const tensor = torch_tensor::handle(object);
  void* data = nullptr;
  std::int32_t type = -1, device = -1;
  torch_tensor::api.device_type(tensor, &type);
  if (type == torch_tensor::kCuda) [[likely]]
    torch_tensor::api.device_index(tensor, &device);
  else if (type != torch_tensor::kCpu || !host_memory_accepted)
    return by_library(object, adapter, i);
  if (torch_tensor::api.data_ptr(tensor, &data) != 0 || !data) return by_library(object, adapter, i);
  address(i, reinterpret_cast<std::uint64_t>(data));
  return device == source_.device || type == torch_tensor::kCpu || located(device, i);
}

bool Arguments::take(PyObject* const* objects, std::size_t count) noexcept {
  if (count > kMost)
    return set_invalid("%zu arguments were given; a launch takes at most %zu", count, kMost), false;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* const object = objects[i];
    PyTypeObject* const type = Py_TYPE(object);
    data_[i] = &slots_[i];
    if (type == &PyLong_Type) {
      types_[i] = kSigned;
      slots_[i].integer = PyLong_AsLongLong(object);
      if (slots_[i].integer == -1 && PyErr_Occurred() && !other(object, i)) return false;
    } else if (type == &PyFloat_Type) {
      types_[i] = kFloat;
      slots_[i].real = PyFloat_AsDouble(object);
    } else if (const Adapter* adapter = known_adapter(type)) {
      if (!array(object, *adapter, i)) return false;
    } else if (object == Py_None) {
      address(i, 0);
    } else if (is_device_pointer(type)) {
      std::uint64_t value = 0;
      if (!device_address(object, &value)) return false;
      address(i, value);
    } else if (!other(object, i)) {
      return false;
    }
  }
  count_ = count;
  return true;
}

bool Arguments::by_library(PyObject* object, const Adapter& adapter, std::size_t i) noexcept {
  switch (adapter.kind) {
    case Adapter::Kind::torch:
      if (!adapter.api) return from_methods(object, i);
      [[fallthrough]];  // also empty tensors, tensors in host memory, and fake ones, which torch refuses
    case Adapter::Kind::exchange: {
      dlpack::Tensor tensor;
      return adapter.api->borrow(object, &tensor) == 0 && borrowed(object, tensor, i);
    }
    case Adapter::Kind::cupy:
      return from_cupy(object, i);
    case Adapter::Kind::cuda_array_interface:
      return from_interface(object, i);
    case Adapter::Kind::dlpack:
      return from_capsule(object, i);
  }
  return false;
}

/// For torch before 2.10, which has no exchange table.
bool Arguments::from_methods(PyObject* object, std::size_t i) noexcept {
  const Owned data(PyObject_CallMethod(object, "data_ptr", nullptr)),
      device(data ? PyObject_CallMethod(object, "get_device", nullptr) : nullptr);
  if (!device) return false;
  const std::uint64_t value = PyLong_AsUnsignedLongLong(data);
  const long id = PyLong_AsLong(device);
  if (PyErr_Occurred()) return false;
  dlpack::Tensor tensor{};
  const std::int64_t shape = 0;  // so a null address is accepted: torch has refused fake tensors already
  tensor.data = reinterpret_cast<void*>(value), tensor.dimensions = 1,
  tensor.shape = const_cast<std::int64_t*>(&shape);
  tensor.device = {id < 0 ? dlpack::kCpu : dlpack::kCuda, static_cast<std::int32_t>(id)};
  return borrowed(object, tensor, i);
}

bool Arguments::borrowed(PyObject* object, const dlpack::Tensor& tensor, std::size_t i) noexcept {
  const bool on_host = tensor.device.type == dlpack::kCpu;
  if (tensor.device.type == dlpack::kCuda || tensor.device.type == dlpack::kCudaManaged) {
    if (!located(tensor.device.id, i)) return false;
  } else if (tensor.device.type != dlpack::kCudaHost && !(on_host && host_memory_accepted)) {
    if (on_host)
      return set_invalid("argument %zu, a %s, lies in host memory: a kernel takes arrays of a CUDA device", i,
                         type_name(object)),
             false;
    return set_invalid(
               "argument %zu, a %s, lies on a device of DLPack's type %d: a kernel takes arrays of a CUDA "
               "device",
               i, type_name(object), tensor.device.type),
           false;
  }
  if (!tensor.data && has_elements(tensor))
    return set_invalid("argument %zu, a %s, has no memory: is it a fake or meta tensor?", i,
                       type_name(object)),
           false;
  address(i, reinterpret_cast<std::uint64_t>(tensor.data) + tensor.byte_offset);
  return true;
}

bool Arguments::located(int device, std::size_t i) noexcept {
  if (source_.device < 0) source_.device = device;
  if (source_.device == device) return true;
  set_invalid("argument %zu lies on device %d, an earlier one on device %d", i, device, source_.device);
  return false;
}

bool Arguments::from_cupy(PyObject* object, std::size_t i) noexcept {
  const Owned data(PyObject_GetAttrString(object, "data"));
  const Owned pointer(data ? PyObject_GetAttrString(data, "ptr") : nullptr);
  const Owned device(data ? PyObject_GetAttrString(data, "device_id") : nullptr);
  if (!pointer || !device) return false;
  const std::uint64_t value = PyLong_AsUnsignedLongLong(pointer);
  const long id = PyLong_AsLong(device);
  if (PyErr_Occurred() || !located(static_cast<int>(id), i)) return false;
  address(i, value);
  return true;
}

bool Arguments::from_interface(PyObject* object, std::size_t i) noexcept {
  const Owned interface(PyObject_GetAttrString(object, "__cuda_array_interface__"));
  if (!interface) return false;
  PyObject* const data = PyDict_Check(interface) ? PyDict_GetItemString(interface, "data") : nullptr;
  if (!data || !PyTuple_Check(data) || PyTuple_Size(data) < 1)
    return set_invalid("argument %zu: the __cuda_array_interface__ of a %s has no data", i,
                       type_name(object)),
           false;
  address(i, PyLong_AsUnsignedLongLong(PyTuple_GetItem(data, 0)));
  if (PyErr_Occurred()) return false;
  return source_.take_interface(interface, ("argument " + std::to_string(i)).c_str());
}

bool Arguments::from_capsule(PyObject* object, std::size_t i) noexcept {
  const Owned capsule(PyObject_CallMethod(object, "__dlpack__", nullptr));
  if (!capsule || (!keep_ && !(keep_ = PyList_New(0))) || PyList_Append(keep_, capsule) != 0) return false;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
    return borrowed(
        object,
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"))->tensor,
        i);
  auto* const tensor = static_cast<dlpack::Tensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  return tensor && borrowed(object, *tensor, i);
}

bool Arguments::other(PyObject* object, std::size_t i) noexcept {
  PyErr_Clear();
  Adapter unkept;
  if (const Adapter* adapter = learn_adapter(object, source_.library ? &unkept : &unkept_))
    return array(object, *adapter, i);
  if (PyErr_Occurred()) return false;
  if (PyBytes_Check(object)) {  // a struct by value, a tensor map
    char* bytes = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(object, &bytes, &size) != 0) return false;
    types_[i] = {KILN_ARG_BYTES, static_cast<std::uint32_t>(size)};
    data_[i] = bytes;  // the caller keeps the object alive
    return true;
  }
  if (PyFloat_Check(object)) {
    types_[i] = kFloat;
    slots_[i].real = PyFloat_AsDouble(object);
    return true;
  }
  const Owned number(PyNumber_Index(object));
  if (!number) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear();
    if (PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__float__")) {  // numpy.float32
      types_[i] = kFloat;
      slots_[i].real = PyFloat_AsDouble(object);
      return slots_[i].real != -1 || !PyErr_Occurred();
    }
    set_invalid("argument %zu, a %s, is no array of a CUDA device, number, bytes or None", i,
                type_name(object));
    return false;
  }
  types_[i] = kSigned;
  slots_[i].integer = PyLong_AsLongLong(number);
  if (slots_[i].integer == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    types_[i] = kUnsigned;
    slots_[i].address = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return set_invalid("argument %zu does not fit 64 bits", i), false;
    }
  }
  return true;
}

bool StreamSource::take_interface(PyObject* interface, const char* what) noexcept {
  PyObject* const stream = PyDict_GetItemString(interface, "stream");
  if (!stream || stream == Py_None) return true;
  const std::uint64_t of_array = PyLong_AsUnsignedLongLong(stream);
  if (PyErr_Occurred()) return false;
  if (named != 0 && named != of_array)
    return set_invalid("%s names another stream than an earlier one: choose the stream with stream=", what),
           false;
  named = of_array;
  return true;
}

bool StreamSource::choose(PyObject* given, CUstream* out) const noexcept {
  void* handle = nullptr;
  if (given && given != Py_None) {
    if (!stream_handle(given, &handle)) return false;
  } else if (library && library->api) {
    if (device >= 0 && library->api->current_stream(dlpack::kCuda, device, &handle) != 0) return false;
  } else if (library && library->kind == Adapter::Kind::torch) {
    if (device >= 0 && !torch_tensor::current_stream(device, &handle)) return false;
  } else if (library && library->kind == Adapter::Kind::cupy) {
    if (!cupy_stream(&handle)) return false;
  } else {
    handle = reinterpret_cast<void*>(named);
  }
  *out = static_cast<CUstream>(handle);
  return true;
}

}  // namespace kiln::python
