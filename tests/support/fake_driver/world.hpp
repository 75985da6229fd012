// The fake driver's state. One mutex protects all of it; handles are checked against the objects that exist.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/fake_driver/kiln_fake.h"
#include "toolchain/cubin.hpp"
#include "toolchain/driver.hpp"
#include "toolchain/driver_entries.hpp"

struct CUctx_st {
  int device = 0;
  bool primary = false;
  int references = 0;  // counted for a primary context only
  unsigned long long id = 0;
};
struct CUlib_st {
  kiln::toolchain::CubinFacts facts;
  std::map<std::string, CUkern_st*> kernels;
  std::map<std::pair<CUctx_st*, std::string>, kiln::toolchain::CUdeviceptr> globals;
};
struct CUkern_st {
  CUlib_st* library = nullptr;
  const kiln::toolchain::CubinKernel* facts = nullptr;
  std::map<CUctx_st*, CUfunc_st*> functions;
};
struct CUfunc_st {
  CUkern_st* kernel = nullptr;
  CUctx_st* context = nullptr;
  bool loaded = false, non_portable_cluster = false;
  int max_dynamic_shared = 0;
};

namespace kiln::fake {

using namespace toolchain;

// Values from cuda.h that only the fake driver needs.
inline constexpr CUresult CUDA_ERROR_OUT_OF_MEMORY = 2;
inline constexpr CUresult CUDA_ERROR_INVALID_DEVICE = 101;
inline constexpr CUresult CUDA_ERROR_NOT_FOUND = 500;
inline constexpr CUresult CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;
inline constexpr CUresult CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901;

struct Launch {
  std::string kernel;
  LaunchConfig config;
  unsigned cluster[3] = {};
  bool cooperative = false, programmatic = false, captured = false;
  std::vector<std::unique_ptr<std::max_align_t[]>> bytes;
  std::vector<const void*> arguments;
  std::vector<std::size_t> sizes;

  kiln_fake_launch view() const;
};

struct Failure {
  int result = 0, after = 0, times = 0;
};

struct World {
  World();

  std::recursive_mutex mutex;  // a launch callback may call the driver
  int devices = 1, arch = 90, version = 13000;
  std::string device_name;         // name of every device
  std::optional<double> spent_us;  // when set, the time that events report
  std::set<std::string, std::less<>> missing;

  std::atomic<bool> quiet{false};
  bool initialized = false, deinitialized = false, strict_capture = false;
  bool forked = false;  // set in a child that was forked after cuInit, and never cleared
  bool reuse_context_address = false;
  std::map<std::string, unsigned long, std::less<>> calls;
  std::map<std::string, Failure, std::less<>> failures;

  std::map<CUctx_st*, std::unique_ptr<CUctx_st>> contexts;
  std::vector<std::unique_ptr<CUctx_st>> destroyed_contexts;
  unsigned long long last_context_id = 0;
  std::map<CUlib_st*, std::unique_ptr<CUlib_st>> libraries;
  std::map<CUkern_st*, std::unique_ptr<CUkern_st>> kernels;
  std::map<CUfunc_st*, std::unique_ptr<CUfunc_st>> functions;
  std::map<std::uintptr_t, std::size_t> memory;  // host addresses
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  std::map<CUgraph_st*, std::unique_ptr<CUgraph_st>> graphs;
  std::map<CUgraphExec_st*, std::unique_ptr<CUgraphExec_st>> execs;

  std::deque<std::shared_ptr<const Launch>> launches;  // a deque, so that addresses stay valid
  void (*callback)(const kiln_fake_launch*, void*) = nullptr;
  void* callback_user = nullptr;
};

World& world();
int& capture_mode();
/// Driver calls by this thread. A reset does not clear the count.
unsigned long& calls_here();
CUctx_st* current_context();  // of this thread, even when it was destroyed
/// CUDA_SUCCESS, or the error of a call that needs this thread's current context.
CUresult context_state(const World& w);
void forget_current();

/// Counts a call of `name`. Returns the result that the call must return without doing anything, or nothing.
std::optional<CUresult> intercept(const char* name, bool needs_init);

/// The beginning of every entry point: takes the lock, counts the call, and returns an injected error.
#define KILN_FAKE_ENTER(name)                \
  World& w = world();                        \
  const std::lock_guard entry_lock(w.mutex); \
  if (const auto forced = intercept(#name, true)) return *forced

#define KILN_FAKE_DECLARE(name, version) std::remove_pointer_t<decltype(Driver::name)> name;
KILN_DRIVER_FUNCTIONS(KILN_FAKE_DECLARE, KILN_FAKE_DECLARE)
#undef KILN_FAKE_DECLARE

/// CUDA_SUCCESS, or the reason why nothing may be loaded now (strict capture).
/// Breaks the captures, as the driver does.
CUresult loading_allowed(World& w);
/// Runs or captures `launch` on `stream`.
CUresult enqueue(World& w, CUstream stream, std::shared_ptr<Launch> launch);
void run(World& w, const std::shared_ptr<const Launch>& launch);
bool valid_stream(World& w, CUstream stream);

}  // namespace kiln::fake

struct CUstream_st {
  CUctx_st* context = nullptr;
  bool capturing = false, invalidated = false;
  int mode = 0;
  std::vector<std::shared_ptr<kiln::fake::Launch>> captured;
};
struct CUevent_st {
  bool recorded = false;
  double at_ms = 0;
};
struct CUgraph_st {
  std::vector<std::shared_ptr<kiln::fake::Launch>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::shared_ptr<kiln::fake::Launch>> nodes;
};
