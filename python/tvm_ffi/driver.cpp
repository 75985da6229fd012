#include "driver.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace kiln::tvm_ffi {
namespace {

struct Driver {
  int (*initialise)(unsigned) = nullptr;
  int (*current)(int*) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  bool complete = false;
};

/// The functions of the driver that kiln uses: KILN_LIBCUDA, else libcuda.so.1.
Driver open() noexcept {
  Driver out;
  const char* const named = std::getenv("KILN_LIBCUDA");
  void* const library = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW);
  using Get = int (*)(const char*, void**, int, std::uint64_t, int*);
  const auto get = library ? reinterpret_cast<Get>(dlsym(library, "cuGetProcAddress_v2")) : nullptr;
  if (!get) return out;
  const auto find = [&](auto& function, const char* name) {
    void* found = nullptr;
    int status = 0;
    if (get(name, &found, 12000, 0, &status) == 0) function = reinterpret_cast<decltype(+function)>(found);
    return found != nullptr;
  };
  out.complete = find(out.initialise, "cuInit") && find(out.current, "cuCtxGetDevice") &&
                 find(out.retain, "cuDevicePrimaryCtxRetain") && find(out.push, "cuCtxPushCurrent") &&
                 find(out.pop, "cuCtxPopCurrent") && out.initialise(0) == 0;
  return out;
}

const Driver& driver() noexcept {
  static const Driver known = open();
  return known;
}

/// The primary context, retained for the rest of the process. Null after a failure.
void* primary(int device) noexcept {
  constexpr int kDevices = 64;
  static std::atomic<void*> known[kDevices];
  if (device < 0 || device >= kDevices) return nullptr;
  void* context = known[device].load(std::memory_order_acquire);
  if (!context && driver().retain(&context, device) == 0)
    known[device].store(context, std::memory_order_release);
  return context;
}

}  // namespace

CurrentDevice::CurrentDevice(int device) noexcept {
  const Driver& functions = driver();
  int current = -1;
  if (!functions.complete) {
    error_ = "the CUDA driver does not load; kiln doctor says why";
  } else if (functions.current(&current) != 0 || current != device) {
    void* const context = primary(device);
    pushed_ = context && functions.push(context) == 0;
    if (!pushed_) error_ = "the driver gives no primary context of the tensors' device";
  }
}

CurrentDevice::~CurrentDevice() {
  void* context = nullptr;
  if (pushed_) driver().pop(&context);
}

}  // namespace kiln::tvm_ffi
