#include "tests/support/gated_driver/gated_driver.h"

#include <dlfcn.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "toolchain/driver.hpp"

#define KILN_GATE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using kiln::toolchain::CUlibrary;
using kiln::toolchain::CUresult;

struct Gate {
  std::mutex mutex;
  std::condition_variable moved;
  bool shut = false;
  int waiting = 0;
};
Gate& gate() {
  static Gate& g = *new Gate;
  return g;
}

using Load = CUresult (*)(CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned);
Load g_load = nullptr;  // the fake driver's function; set before any caller can get `load`

CUresult load(CUlibrary* out, const void* code, int* jit, void** jit_values, unsigned jit_count, int* options,
              void** option_values, unsigned option_count) {
  Gate& g = gate();
  {
    std::unique_lock lock(g.mutex);
    ++g.waiting;
    g.moved.wait(lock, [&] { return !g.shut; });
    --g.waiting;
  }
  return g_load(out, code, jit, jit_values, jit_count, options, option_values, option_count);
}

}  // namespace

KILN_GATE_EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                         unsigned long long flags, int* status) {
  using Ask = int (*)(const char*, void**, int, unsigned long long, int*);
  static const auto ask =
      reinterpret_cast<Ask>(::dlsym(::dlopen(KILN_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2"));
  const int result = ask(symbol, function, version, flags, status);
  if (result == 0 && std::strcmp(symbol, "cuLibraryLoadData") == 0) {
    g_load = reinterpret_cast<Load>(*function);
    *function = reinterpret_cast<void*>(&load);
  }
  return result;
}

KILN_GATE_EXPORT void kiln_gate_shut(int on) {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  g.shut = on != 0;
  g.moved.notify_all();
}

KILN_GATE_EXPORT int kiln_gate_waiting(void) {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  return g.waiting;
}
