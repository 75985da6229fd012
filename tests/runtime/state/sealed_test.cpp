// Modes and counters through the public API.
#include <chrono>

#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

class Sealed : public FakeRuntime {
 protected:
  Options sealed() const {
    Options o = options();
    o.mode = Mode::sealed;
    return o;
  }
  void prewarm() {
    Service service(options());
    service.open("rms_norm", Device::none()).compile(Dtype::bf16, 4096);
  }
};

TEST_F(Sealed, DiskHitsLoadBeforeTheSealAndStayReadyAfterIt) {
  prewarm();
  Service service(sealed());
  const KernelTemplate t = service.open("rms_norm");
  const Kernel k = t.get(Dtype::bf16, 4096);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_DISK);
  service.seal();
  EXPECT_EQ(t.get(Dtype::bf16, 4096).handle(), k.handle());
  EXPECT_EQ(t.get({{"T", "bf16"}, {"H", 4096}}).handle(), k.handle()) << "another spelling of a ready kernel";
  EXPECT_EQ(service.stats().sealed_misses, 0u);
}

TEST_F(Sealed, AMissBeforeTheSealIsRefusedWithoutACompile) {
  Service service(sealed());
  const KernelTemplate t = service.open("rms_norm");
  expect_error(Errc::not_ready,
               {"rms_norm T=bf16 H=4096",
                "not in the cache, and mode sealed does not compile it; a plan for `kiln prewarm`",
                "[[prewarm]]", "template = \"rms_norm\"", "T = \"bf16\"", "H = \"4096\""},
               [&] { t.get(Dtype::bf16, 4096); });
  EXPECT_EQ(service.stats().compiles + service.stats().compile_failures, 0u);
  EXPECT_EQ(kiln_fake_calls("cuLibraryLoadData"), 0u);
}

TEST_F(Sealed, AMissAfterTheSealNamesThePlanLineAndTouchesNothing) {
  prewarm();
  Service service(sealed());
  const KernelTemplate t = service.open("rms_norm");
  service.seal();
  const Stats before = service.stats();
  const auto calls = driver_calls([&] {
    expect_error(Errc::not_ready,
                 {"sealed", "rms_norm T=bf16 H=4096", "[[prewarm]]", "template = \"rms_norm\"",
                  "T = \"bf16\"", "H = \"4096\""},
                 [&] { t.get(Dtype::bf16, 4096); });
    expect_error(Errc::not_ready, {"H=8192"}, [&] { t.get(Dtype::bf16, 8192); });
  });
  EXPECT_EQ(calls, 0u);
  const Stats after = service.stats();
  EXPECT_EQ(after.sealed_misses, 2u);
  EXPECT_EQ(after.compiles, 0u);
  EXPECT_EQ(after.disk_hits, before.disk_hits) << "the disk is not asked";
  EXPECT_EQ(after.miss_absent, before.miss_absent);
}

TEST_F(Sealed, AMissIsQuick) {
  Service service(sealed());
  const KernelTemplate t = service.open("rms_norm");
  service.seal();
  double best_us = 1e9;
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(t.get(Dtype::bf16, 4096), Error);
    best_us = std::min(
        best_us, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  EXPECT_LT(best_us, 1000) << "the budget is 50 us; measured in tests/bench";
}

TEST_F(Sealed, OtherModesStillMakeKernelsAfterTheSeal) {
  for (const Mode mode : {Mode::jit, Mode::warn}) {
    Options o = options();
    o.mode = mode;
    Service service(o);
    service.seal();
    EXPECT_TRUE(service.open("rms_norm").get(Dtype::bf16, 4096));
    EXPECT_EQ(service.stats().sealed_misses, 0u);
  }
}

TEST_F(Sealed, BadParametersAreStillThatError) {
  Service service(sealed());
  const KernelTemplate t = service.open("rms_norm");
  service.seal();
  expect_error(Errc::invalid_value, {"e4m3"}, [&] { t.get(Dtype::e4m3, 4096); });
  EXPECT_EQ(service.stats().sealed_misses, 0u);
}

class Counters : public FakeRuntime {};

TEST_F(Counters, TellWhereKernelsCameFrom) {
  {
    Service service(options());
    const KernelTemplate t = service.open("rms_norm");
    t.get(Dtype::bf16, 4096);
    const Stats stats = service.stats();
    EXPECT_EQ(stats.miss_absent, 1u);
    EXPECT_EQ(stats.compiles, 1u);
    EXPECT_GT(stats.compile_ms, 0);
  }
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  t.get(Dtype::bf16, 4096);
  for (int i = 0; i < 10; ++i) t.get(Dtype::bf16, 4096);
  const Stats stats = service.stats();
  EXPECT_EQ(stats.struct_size, sizeof(Stats));
  EXPECT_EQ(stats.disk_hits, 1u);
  EXPECT_EQ(stats.memory_hits, 0u) << "hits of the ready table are not counted";
  EXPECT_EQ(stats.miss_absent, 0u);
  EXPECT_EQ(stats.loads, 1u);
  EXPECT_EQ(stats.compile_ms, 0);
}

}  // namespace
}  // namespace kiln::testing
