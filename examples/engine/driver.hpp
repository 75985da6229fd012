// The few driver calls that an engine makes itself, loaded with dlopen: the build needs no CUDA toolkit.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kiln/kiln.h"

class Driver {
 public:
  /// The driver, when it has a device; else null, and `why` receives the reason.
  static const Driver* find(std::string& why) {
    static Driver driver;
    why = driver.why_;
    return driver.why_.empty() ? &driver : nullptr;
  }
  /// Makes the first device's primary context current in this thread.
  void use_first_device() const {
    void* context = nullptr;
    check(retain_(&context, 0), "cuDevicePrimaryCtxRetain");
    check(set_current_(context), "cuCtxSetCurrent");
  }
  CUstream make_stream() const {
    CUstream out = nullptr;
    check(stream_create_(&out, 0), "cuStreamCreate");
    return out;
  }
  void synchronize(CUstream stream) const { check(stream_synchronize_(stream), "cuStreamSynchronize"); }

  /// Allocates device memory with the contents of `from`. Never frees it, because the process is short.
  template <class T>
  T* upload(const std::vector<T>& from) const {
    unsigned long long address = 0;
    check(alloc_(&address, from.size() * sizeof(T)), "cuMemAlloc");
    check(to_device_(address, from.data(), from.size() * sizeof(T)), "cuMemcpyHtoD");
    return reinterpret_cast<T*>(address);
  }
  template <class T>
  std::vector<T> download(const T* from, std::size_t count) const {
    std::vector<T> out(count);
    check(to_host_(out.data(), reinterpret_cast<unsigned long long>(from), count * sizeof(T)),
          "cuMemcpyDtoH");
    return out;
  }

 private:
  Driver() {
    const char* named = std::getenv("KILN_LIBCUDA");  // as kiln does
    void* library = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW);
    if (!library) {
      why_ = dlerror();
      return;
    }
    using Get = int (*)(const char*, void**, int, unsigned long long, int*);
    const auto get = reinterpret_cast<Get>(dlsym(library, "cuGetProcAddress_v2"));
    const auto bind = [&](auto& function, const char* name, int version) {
      void* found = nullptr;
      int status = 0;
      if (!get || get(name, &found, version, 0, &status) != 0 || !found)
        why_ = std::string("the driver lacks ") + name;
      std::memcpy(&function, &found, sizeof found);
    };
    int (*init)(unsigned) = nullptr;
    int (*count)(int*) = nullptr;
    bind(init, "cuInit", 2000);
    bind(count, "cuDeviceGetCount", 2000);
    bind(retain_, "cuDevicePrimaryCtxRetain", 7000);
    bind(set_current_, "cuCtxSetCurrent", 4000);
    bind(stream_create_, "cuStreamCreate", 2000);
    bind(stream_synchronize_, "cuStreamSynchronize", 2000);
    bind(alloc_, "cuMemAlloc", 3020);
    bind(to_device_, "cuMemcpyHtoD", 3020);
    bind(to_host_, "cuMemcpyDtoH", 3020);
    if (!why_.empty()) return;
    int devices = 0;
    const int result = init(0);
    if (result != 0)
      why_ = "cuInit returned " + std::to_string(result);
    else if (count(&devices) != 0 || devices == 0)
      why_ = "the driver has no device";
  }
  static void check(int result, const char* call) {
    if (result != 0) throw std::runtime_error(std::string(call) + " returned " + std::to_string(result));
  }

  std::string why_;
  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*stream_create_)(CUstream*, unsigned) = nullptr;
  int (*stream_synchronize_)(CUstream) = nullptr;
  int (*alloc_)(unsigned long long*, std::size_t) = nullptr;
  int (*to_device_)(unsigned long long, const void*, std::size_t) = nullptr;
  int (*to_host_)(void*, unsigned long long, std::size_t) = nullptr;
};
