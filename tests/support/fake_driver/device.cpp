// Initialisation, errors and devices.
#include <cstdio>
#include <cstring>

#include "tests/support/fake_driver/world.hpp"

namespace kiln::fake {
namespace {

struct ErrorText {
  int value;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {300, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
};

const ErrorText* error_text(CUresult result) {
  for (const ErrorText& error : kErrors)
    if (error.value == result) return &error;
  return nullptr;
}

CUresult text_of(CUresult result, const char** out, const char* ErrorText::*field) {
  const ErrorText* error = error_text(result);
  *out = error ? error->*field : nullptr;
  return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool valid_device(const World& w, CUdevice device) { return device >= 0 && device < w.devices; }

}  // namespace

CUresult cuInit(unsigned flags) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (const auto forced = intercept("cuInit", false)) return *forced;
  if (w.forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (w.devices == 0) return CUDA_ERROR_NO_DEVICE;
  w.initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (const auto forced = intercept("cuDriverGetVersion", false)) return *forced;
  *version = w.version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char** out) { return text_of(result, out, &ErrorText::name); }
CUresult cuGetErrorString(CUresult result, const char** out) {
  return text_of(result, out, &ErrorText::text);
}

CUresult cuDeviceGetCount(int* count) {
  KILN_FAKE_ENTER(cuDeviceGetCount);
  *count = w.devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  KILN_FAKE_ENTER(cuDeviceGet);
  if (!valid_device(w, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  KILN_FAKE_ENTER(cuDeviceGetName);
  if (!valid_device(w, device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<std::size_t>(size), "%s", w.device_name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  KILN_FAKE_ENTER(cuDeviceGetAttribute);
  if (!valid_device(w, device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = w.arch / 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = w.arch % 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      return CUDA_SUCCESS;  // this value and the two below are an H200's
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 227 << 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 60 << 20;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace kiln::fake
