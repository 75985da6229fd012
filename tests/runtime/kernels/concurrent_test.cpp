// Many threads use one service in two contexts.
#include <atomic>
#include <barrier>
#include <thread>

#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

class Concurrent : public FakeRuntime {
 protected:
  /// Runs body(i) on `count` threads at once, each with context i % 2 (or 0) current.
  template <class Body>
  void on_threads(int count, int contexts, Body&& body) {
    std::barrier start(count);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        cu().cuCtxSetCurrent(contexts_[i % contexts]);
        start.arrive_and_wait();
        try {
          body(i);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "thread " << i << ": " << error.what();
        }
      });
    }
    for (auto& t : threads) t.join();
  }
};

TEST_F(Concurrent, SixtyFourThreadsOfOneColdKeyGetOneCompileAndOneHandle) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  std::vector<const kiln_kernel*> handles(64);
  on_threads(64, 1, [&](int i) { handles[static_cast<std::size_t>(i)] = t.get(Dtype::bf16, 4096).handle(); });
  for (const auto* handle : handles) EXPECT_EQ(handle, handles[0]);
  const Stats stats = service.stats();
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(stats.loads, 1u) << "kernels that stay loaded";
  EXPECT_EQ(kiln_fake_live("library"), 1u);
  EXPECT_LE(stats.device_bytes, 200000u);
}

TEST_F(Concurrent, TwoThreadsInTwoContextsEachGetTheirOwn) {
  Service service(options());
  std::vector<CUfunction> functions(2);
  on_threads(2, 2, [&](int i) {
    const KernelTemplate t = service.open("rms_norm");
    for (int n = 0; n < 100; ++n) {
      const Kernel k = t.get(Dtype::bf16, 4096);
      RmsNormCall()(k);  // the fake driver refuses a function of another context
      functions[static_cast<std::size_t>(i)] = k.function();
    }
  });
  EXPECT_NE(functions[0], functions[1]);
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 2u);
  EXPECT_EQ(kiln_fake_launches(), 200u);
}

TEST_F(Concurrent, DifferentKeysAndLaunchesOfOneKernelDoNotDisturbEachOther) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  const Kernel shared = t.get(Dtype::bf16, 4096);
  on_threads(8, 1, [&](int i) {
    const int h = 1024 * (i % 4 + 1);
    for (int n = 0; n < 20; ++n) {
      const Kernel k = t.get(Dtype::bf16, h);
      EXPECT_NE(std::string(k.info().specialization).find("H=" + std::to_string(h) + " "), std::string::npos);
      RmsNormCall call;
      call.rows = i * 100 + n;
      call(shared);
    }
  });
  EXPECT_EQ(service.stats().compiles, 4u);
  EXPECT_EQ(kiln_fake_launches(), 8u * 20 - 1) << "one call had no rows";
}

TEST_F(Concurrent, LastErrorBelongsToItsThread) {
  expect_error(Errc::unknown_template, {"first"}, [&] { Service(options()).open("first"); });
  std::thread([&] {
    EXPECT_EQ(kiln_last_error()->status, 0);
    EXPECT_STREQ(kiln_last_error()->message, "");
    kiln_service_seal(nullptr);
    EXPECT_NE(std::string(kiln_last_error()->message).find("kiln_service is null"), std::string::npos);
  }).join();
  EXPECT_NE(std::string(kiln_last_error()->message).find("first"), std::string::npos);
}

TEST_F(Concurrent, ServicesOfOneProcessShareTheDiskAndNotTheKernels) {
  Service a(options()), b(options());
  std::vector<const kiln_kernel*> handles(2);
  on_threads(2, 1, [&](int i) {
    handles[static_cast<std::size_t>(i)] = (i ? a : b).open("rms_norm").get(Dtype::bf16, 4096).handle();
  });
  EXPECT_NE(handles[0], handles[1]);
  EXPECT_EQ(a.stats().compiles + b.stats().compiles, 1u);
  EXPECT_EQ(kiln_fake_live("library"), 2u);
}

}  // namespace
}  // namespace kiln::testing
