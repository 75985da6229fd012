// The exports of the shared library: cuGetProcAddress_v2 and the controls for tests.
#include <cstdlib>
#include <cstring>

#include "tests/support/fake_driver/world.hpp"

#define KILN_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace kiln::fake {
namespace {

struct Entry {
  const char* name;
  int version;
  void* function;
};
#define KILN_FAKE_ENTRY(name, version) {#name, version, reinterpret_cast<void*>(&name)},
const Entry kEntries[] = {KILN_DRIVER_FUNCTIONS(KILN_FAKE_ENTRY, KILN_FAKE_ENTRY)};
#undef KILN_FAKE_ENTRY

enum { kSymbolFound = 0, kSymbolNotFound = 1, kVersionNotSufficient = 2 };

void forget_objects(World& w) {
  w.execs.clear();
  w.graphs.clear();
  w.events.clear();
  w.streams.clear();
  w.functions.clear();
  w.kernels.clear();
  w.libraries.clear();
  w.contexts.clear();
  w.destroyed_contexts.clear();
  for (const auto& [address, size] : w.memory) std::free(reinterpret_cast<void*>(address));
  w.memory.clear();
}

}  // namespace
}  // namespace kiln::fake

using kiln::fake::world;

KILN_FAKE_EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version, unsigned long long,
                                         int* status) {
  using namespace kiln::fake;
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (!symbol || !function) return kiln::toolchain::CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  int found = kSymbolNotFound;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, symbol) != 0 || w.missing.count(symbol) || entry.version > w.version)
      continue;
    found = version < entry.version ? kVersionNotSufficient : kSymbolFound;
    if (found == kSymbolFound) *function = entry.function;
  }
  if (status) *status = found;
  return *function ? 0 : CUDA_ERROR_NOT_FOUND;
}

KILN_FAKE_EXPORT void kiln_fake_reset(void) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  kiln::fake::forget_objects(w);
  w.launches.clear();
  w.calls.clear();
  w.failures.clear();
  w.callback = nullptr;
  w.spent_us.reset();
  w.quiet = w.deinitialized = w.strict_capture = w.reuse_context_address = false;
  kiln::fake::forget_current();
  kiln::fake::capture_mode() = 0;
}

KILN_FAKE_EXPORT unsigned long kiln_fake_calls(const char* name) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  unsigned long total = 0;
  for (const auto& [call, count] : w.calls)
    if (!name || call == name) total += count;
  return total;
}

KILN_FAKE_EXPORT unsigned long kiln_fake_calls_here(void) { return kiln::fake::calls_here(); }

KILN_FAKE_EXPORT size_t kiln_fake_live(const char* what) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  const std::string_view kind = what;
  if (kind == "context") return w.contexts.size();
  if (kind == "library") return w.libraries.size();
  if (kind == "stream") return w.streams.size();
  if (kind == "event") return w.events.size();
  if (kind == "graph") return w.graphs.size();
  if (kind == "exec") return w.execs.size();
  if (kind == "memory") return w.memory.size();
  size_t bytes = 0;
  for (const auto& [address, size] : w.memory) bytes += size;
  return bytes;
}

KILN_FAKE_EXPORT void kiln_fake_fail(const char* name, int result, int after, int times) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  w.failures[name] = {result, after, times};
}

KILN_FAKE_EXPORT void kiln_fake_deinitialize(void) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  w.deinitialized = true;
}

KILN_FAKE_EXPORT void kiln_fake_strict_capture(int on) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  w.strict_capture = on != 0;
}

KILN_FAKE_EXPORT void kiln_fake_reuse_context_address(int on) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  w.reuse_context_address = on != 0;
}

KILN_FAKE_EXPORT void kiln_fake_quiet(int on) { world().quiet = on != 0; }

KILN_FAKE_EXPORT void kiln_fake_spend(double microseconds) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  w.spent_us = w.spent_us.value_or(0) + microseconds;
}

KILN_FAKE_EXPORT size_t kiln_fake_launches(void) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  return w.launches.size();
}

KILN_FAKE_EXPORT int kiln_fake_launch_at(size_t index, kiln_fake_launch* out) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  if (index >= w.launches.size()) return 0;
  *out = w.launches[index]->view();
  return 1;
}

KILN_FAKE_EXPORT void kiln_fake_on_launch(void (*callback)(const kiln_fake_launch*, void* user), void* user) {
  auto& w = world();
  const std::lock_guard lock(w.mutex);
  w.callback = callback;
  w.callback_user = user;
}
