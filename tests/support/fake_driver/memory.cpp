// Device memory is host memory. Every access is checked against the allocations.
#include <cstdlib>
#include <cstring>

#include "tests/support/fake_driver/world.hpp"

namespace kiln::fake {
namespace {

constexpr std::size_t kAlignment = 256;

/// Host address of [device, device + size); null when no single allocation holds the whole range.
char* range(World& w, CUdeviceptr device, std::size_t size) {
  auto it = w.memory.upper_bound(static_cast<std::uintptr_t>(device));
  if (it == w.memory.begin()) return nullptr;
  --it;
  const std::size_t offset = device - it->first;
  if (offset > it->second || size > it->second - offset) return nullptr;
  return reinterpret_cast<char*>(device);
}

}  // namespace

CUresult cuMemAlloc(CUdeviceptr* out, size_t size) {
  KILN_FAKE_ENTER(cuMemAlloc);
  if (const auto bad = context_state(w)) return bad;
  if (!out || size == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = size > (std::size_t{1} << 40)
                     ? nullptr
                     : std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<std::uintptr_t>(memory);
  w.memory.emplace(*out, size);
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr device) {
  KILN_FAKE_ENTER(cuMemFree);
  if (device == 0) return CUDA_SUCCESS;
  if (!w.memory.erase(static_cast<std::uintptr_t>(device))) return CUDA_ERROR_INVALID_VALUE;
  std::free(reinterpret_cast<void*>(device));
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t size) {
  KILN_FAKE_ENTER(cuMemcpyHtoD);
  char* target = range(w, to, size);
  if (!target || !from) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(target, from, size);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t size) {
  KILN_FAKE_ENTER(cuMemcpyDtoH);
  const char* source = range(w, from, size);
  if (!source || !to) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(to, source, size);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  KILN_FAKE_ENTER(cuMemcpyDtoHAsync);
  if (stream && !w.streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  const char* source = range(w, from, size);
  if (!source || !to) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(to, source, size);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
  KILN_FAKE_ENTER(cuMemcpyDtoD);
  char* target = range(w, to, size);
  const char* source = range(w, from, size);
  if (!target || !source) return CUDA_ERROR_INVALID_VALUE;
  std::memmove(target, source, size);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t size) {
  KILN_FAKE_ENTER(cuMemsetD8);
  char* target = range(w, to, size);
  if (!target) return CUDA_ERROR_INVALID_VALUE;
  std::memset(target, value, size);
  return CUDA_SUCCESS;
}

}  // namespace kiln::fake
