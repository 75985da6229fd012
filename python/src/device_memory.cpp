// kiln._kiln.DeviceMemory: memory for outputs of arrays whose library cannot make them (JAX, numba).
#include "device_memory.hpp"

#include <dlfcn.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "errors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kiln::python {
namespace {

/// The driver's functions, from the library that kiln itself has loaded.
struct Driver {
  int (*allocate)(std::uint64_t* out, std::size_t bytes) = nullptr;
  int (*free)(std::uint64_t address) = nullptr;
};

const Driver& driver() {
  static const Driver loaded = [] {
    Driver out;
    const char* const named = std::getenv("KILN_LIBCUDA");
    void* const library = ::dlopen(named && *named ? named : "libcuda.so.1", RTLD_LAZY);
    using Find = int(const char*, void**, int, std::uint64_t, int*);
    auto* const find = library ? reinterpret_cast<Find*>(::dlsym(library, "cuGetProcAddress_v2")) : nullptr;
    if (!find) return out;
    int status = 0;
    find("cuMemAlloc", reinterpret_cast<void**>(&out.allocate), 12000, 0, &status);
    find("cuMemFree", reinterpret_cast<void**>(&out.free), 12000, 0, &status);
    return out;
  }();
  return loaded;
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    const int status = driver().allocate ? driver().allocate(&address_, bytes > 0 ? bytes : 1) : -1;
    if (status == 0) return;
    set_invalid("no device memory for %zu bytes (the driver's error %d)", bytes, status);
    throw nb::python_error();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  ~DeviceMemory() { driver().free(address_); }
  std::uint64_t address() const { return address_; }

 private:
  std::uint64_t address_ = 0;
};

/// A DLPack capsule over memory that `owner` keeps.
nb::object capsule(nb::handle owner, const std::vector<std::size_t>& shape,
                   const std::vector<std::int64_t>& strides, int code, int bits, int device) {
  const auto& memory = nb::cast<const DeviceMemory&>(owner);
  const nb::dlpack::dtype type{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
  return nb::cast(nb::ndarray<>(reinterpret_cast<void*>(memory.address()), shape.size(), shape.data(), owner,
                                strides.data(), type, nb::device::cuda::value, device));
}

}  // namespace

void add_device_memory(nb::module_& module) {
  nb::class_<DeviceMemory>(module, "DeviceMemory")
      .def(nb::init<std::size_t>(), "bytes"_a)
      .def_prop_ro("address", &DeviceMemory::address);
  module.def("device_capsule", &capsule, "memory"_a, "shape"_a, "strides"_a, "code"_a, "bits"_a, "device"_a);
}

}  // namespace kiln::python
