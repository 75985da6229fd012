// Services of the shared library over the fake driver. Tests use kiln's public API.
// They use the driver's table only for work that an engine does itself: contexts, streams, captures.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kiln/kiln.hpp"
#include "support/fake_driver/kiln_fake.h"
#include "support/places.hpp"
#include "support/toolkit.hpp"
#include "support/tree.hpp"
#include "toolchain/driver.hpp"

namespace kiln::testing {

/// Runs `body`, which must throw Error(code) with all of `parts` in its text. Returns the text.
template <class Body>
std::string expect_error(Errc code, const std::vector<std::string>& parts, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown";
    return {};
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), code) << text;
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << '\'' << part << "' in: " << text;
    return text;
  }
}

/// The value of one argument of a recorded launch.
template <class T>
T argument(const kiln_fake_launch& launch, unsigned index) {
  T out{};
  if (index >= launch.argument_count || launch.argument_sizes[index] != sizeof(T)) {
    ADD_FAILURE() << "argument " << index << " of " << launch.argument_count << " has not " << sizeof(T)
                  << " bytes";
    return out;
  }
  std::memcpy(&out, launch.arguments[index], sizeof out);
  return out;
}

class FakeRuntime : public ::testing::Test {
 protected:
  /// Devices of the fake driver. Their compute capability is 9.0 unless KILN_FAKE_ARCH says otherwise.
  static constexpr int kDevices = 2;

  void SetUp() override {
    ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
    ::setenv("KILN_FAKE_DEVICES", std::to_string(kDevices).c_str(), 1);
    if (!real_toolkit().has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
    kiln_fake_reset();
    ASSERT_NE(toolchain::Driver::get(), nullptr) << toolchain::Driver::load_error();
    ASSERT_EQ(cu().cuInit(0), 0);
    for (int i = 0; i < kDevices; ++i) ASSERT_EQ(cu().cuDevicePrimaryCtxRetain(&contexts_[i], i), 0);
    use(0);
  }
  void TearDown() override {
    if (toolchain::Driver::get()) cu().cuCtxSetCurrent(nullptr);
  }

  static const toolchain::Driver& cu() { return *toolchain::Driver::get(); }
  void use(int device) { ASSERT_EQ(cu().cuCtxSetCurrent(contexts_[device]), 0); }
  CUstream make_stream() {
    CUstream out = nullptr;
    EXPECT_EQ(cu().cuStreamCreate(&out, 0), 0);
    return out;
  }

  /// Shipped templates, a new cache, and nothing from the developer's environment.
  Options options() const {
    Options o = Options::hermetic();
    o.cache_dir = tree_.at("cache");
    if (const char* home = std::getenv("KILN_CUDA_HOME")) o.cuda_home = home;
    return o;
  }
  /// Adds a template from memory with one parameter N = 1. `toml` has [[arg]] and later tables; `source` has
  /// a __global__ function `f`.
  static void add(Service& service, const std::string& name, const std::string& toml,
                  const std::string& source) {
    service.add_template("format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
                             ".cu\"\ninstantiate = \"f<{N}>\"\n" +
                             "[param.N]\nkind = \"int\"\nrange = [1, 100]\ndefault = 1\n" + toml,
                         source);
  }

  /// The number of driver calls of all threads while `body` runs.
  template <class Body>
  static unsigned long driver_calls(Body&& body) {
    const unsigned long before = kiln_fake_calls(nullptr);
    body();
    return kiln_fake_calls(nullptr) - before;
  }
  /// The number of driver calls that `body` makes in this thread. A kiln thread that has just made a kernel
  /// may still be restoring its context.
  template <class Body>
  static unsigned long driver_calls_here(Body&& body) {
    const unsigned long before = kiln_fake_calls_here();
    body();
    return kiln_fake_calls_here() - before;
  }
  static kiln_fake_launch last_launch() {
    kiln_fake_launch out{};
    EXPECT_GT(kiln_fake_launches(), 0u);
    if (kiln_fake_launches() > 0) kiln_fake_launch_at(kiln_fake_launches() - 1, &out);
    return out;
  }
  /// A pointer that is never followed: these tests only compare addresses.
  template <class T = void>
  static T* device_pointer(std::uintptr_t address = 0x10000) {
    return reinterpret_cast<T*>(address);
  }

  Tree tree_;
  toolchain::CUcontext contexts_[kDevices] = {};
};

/// The arguments of rms_norm up to eps, for H = 4096.
struct RmsNormCall {
  void* out = reinterpret_cast<void*>(0x100000);
  const void* x = reinterpret_cast<const void*>(0x200000);
  const void* w = reinterpret_cast<const void*>(0x300000);
  int rows = 8;
  std::int64_t stride_x = 4096, stride_out = 4096;
  float eps = 1e-6f;

  void operator()(const Kernel& kernel, CUstream stream = nullptr) const {
    kernel(stream, out, x, w, rows, stride_x, stride_out, eps);
  }
};

}  // namespace kiln::testing
