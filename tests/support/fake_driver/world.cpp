#include "tests/support/fake_driver/world.hpp"

#include <pthread.h>

#include <cstdlib>

#include "base/text.hpp"

namespace kiln::fake {
namespace {

int number_from(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

std::string text_from(const char* name, const std::string& otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? text : otherwise;
}

std::vector<std::string> list_from(const char* name) {
  const char* text = std::getenv(name);
  return base::split(text ? text : "", ',');
}

// Once a process has called cuInit, each call in its forked children returns CUDA_ERROR_NOT_INITIALIZED, even
// cuInit. A child that was forked before cuInit may use CUDA.
// The real driver promises a forked child nothing else. All drivers since 8.0 do
// this; PyTorch, Triton and vLLM rely on it.
void lock_for_fork() { world().mutex.lock(); }
void unlock_in_parent() { world().mutex.unlock(); }
void begin_in_child() {
  World& w = world();
  new (&w.mutex) std::recursive_mutex;  // locked by a thread id that the child does not have
  w.forked = w.forked || w.initialized;
}

}  // namespace

World::World()
    : devices(number_from("KILN_FAKE_DEVICES", 1)),
      arch(number_from("KILN_FAKE_ARCH", 90)),
      version(number_from("KILN_FAKE_VERSION", 13000)),
      device_name(text_from("KILN_FAKE_NAME", "Fake sm_" + std::to_string(arch))),
      strict_capture(number_from("KILN_FAKE_STRICT_CAPTURE", 0) != 0) {
  for (const std::string& name : list_from("KILN_FAKE_MISSING")) missing.insert(name);
  for (const std::string& item : list_from("KILN_FAKE_FAIL")) {
    const auto equals = item.find('=');
    if (equals != std::string::npos)
      failures[item.substr(0, equals)] = {std::atoi(item.c_str() + equals + 1), 0, -1};
  }
}

World& world() {
  static World& w = *[] {
    ::pthread_atfork(lock_for_fork, unlock_in_parent, begin_in_child);
    return new World;
  }();
  return w;
}

int& capture_mode() {
  thread_local int mode = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL
  return mode;
}

unsigned long& calls_here() {
  thread_local unsigned long calls = 0;
  return calls;
}

std::optional<CUresult> intercept(const char* name, bool needs_init) {
  World& w = world();
  ++w.calls[name];
  ++calls_here();
  if (w.deinitialized) return CUDA_ERROR_DEINITIALIZED;
  if (const auto it = w.failures.find(name); it != w.failures.end()) {
    Failure& failure = it->second;
    if (failure.after > 0) {
      --failure.after;
    } else if (failure.times != 0) {
      if (failure.times > 0) --failure.times;
      return failure.result;
    }
  }
  if (needs_init && (!w.initialized || w.forked)) return CUDA_ERROR_NOT_INITIALIZED;
  return std::nullopt;
}

}  // namespace kiln::fake
