// The DLPack C structures that kernel arguments are read through. Layout: DLPack 1.3.
#pragma once

#include <cstdint>

namespace kiln::python::dlpack {

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };

struct Device {
  std::int32_t type, id;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  std::uint8_t type_code, type_bits;
  std::uint16_t type_lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

/// The content of a capsule named "dltensor_versioned". A capsule "dltensor" begins with the Tensor itself.
struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

/// The content of `type.__dlpack_c_exchange_api__`, a capsule named "dlpack_exchange_api".
/// It lives as long as its framework.
struct ExchangeApi {
  std::uint32_t major, minor;
  ExchangeApi* older;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*borrow)(void* object, Tensor* out);  ///< may be null; returns 0, or -1 with a Python exception
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace kiln::python::dlpack
