// Preparations make the kernels of a plan ready, also after the seal. Kernels that the seal
// refused form such a plan.
#include "instantiate/plan.hpp"
#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class Prepare : public Core {
 protected:
  Options sealed() const {
    Options o = options();
    o.mode = Mode::sealed;
    return o;
  }
  static std::string rows(const std::string& name, const std::string& values, const std::string& more = "") {
    return "[[prewarm]]\ntemplate = \"" + name + "\"\nN = " + values + '\n' + more;
  }
};

TEST_F(Prepare, MissingNamesEachOnceInOrderAndPreparingItIsTheWayPastTheSeal) {
  Service service(sealed());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  EXPECT_EQ(service.missing(), "");
  service.seal();
  for (const int n : {3, 1, 3, 2, 1}) expect_error(Errc::not_ready, {"sealed"}, [&] { t.get(n); });
  expect_error(Errc::not_ready, {"sealed"}, [&] { t.get_async(3); });
  const std::string missing = service.missing();
  const auto planned = source::parse_plan(missing, "<missing>");
  ASSERT_EQ(planned.size(), 3u) << missing;
  const char* const order[] = {"3", "1", "2"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(planned[i].template_name, "s");
    EXPECT_EQ(planned[i].arch, "sm_90a");
    ASSERT_EQ(planned[i].values.size(), 1u);
    EXPECT_EQ(planned[i].values[0].value, order[i]);
  }
  const Progress progress = service.prepare(missing).wait();
  EXPECT_EQ(progress.total, 3u);
  EXPECT_EQ(progress.compiled, 3u);
  const auto calls = driver_calls([&] {
    for (int n = 1; n <= 3; ++n) EXPECT_TRUE(t.get(n));
  });
  EXPECT_EQ(calls, 0u);
  EXPECT_EQ(service.missing(), missing) << "what was refused was refused";
  EXPECT_EQ(service.stats().compiles, 3u);
}

TEST_F(Prepare, MissingNamesWhatModeSealedDidNotFindBeforeTheSeal) {
  Service service(sealed());
  small(service, "s");
  const KernelTemplate t = service.open("s"), image = service.open("s", Device::none("sm_80"));
  expect_error(Errc::not_ready, {}, [&] { t.get(1); });
  expect_error(Errc::not_ready, {}, [&] { image.compile(1); });
  const auto planned = source::parse_plan(service.missing(), "<missing>");
  ASSERT_EQ(planned.size(), 2u);
  EXPECT_EQ(planned[0].arch, "sm_90a");
  EXPECT_EQ(planned[1].arch, "sm_80");
}

TEST_F(Prepare, WithoutMayCompileItTakesWhatIsOnDiskAndFailsTheRest) {
  {
    Service service(options());
    small(service, "s");
    service.open("s", Device::none()).compile(1);
  }
  Service service(sealed());
  small(service, "s");
  service.seal();
  PrepareOptions o;
  o.may_compile = false;
  const Preparation p = service.prepare(rows("s", "[1, 2]"), o);
  expect_error(Errc::not_ready, {"s N=2", "this call may not compile it (may_compile is false)"},
               [&] { p.wait(); });
  EXPECT_EQ(p.progress().disk, 1u);
  EXPECT_EQ(p.progress().failed, 1u);
  EXPECT_EQ(p.progress().done, 2u);
  EXPECT_EQ(service.stats().compiles, 0u);
  EXPECT_TRUE(service.open("s").get(1));
}

TEST_F(Prepare, CountsEachOnceByHowItWasMade) {
  Service service(options());
  small(service, "s");
  broken(service, "bad");
  const KernelTemplate t = service.open("s");
  t.get(1);
  t.compile(2);
  const Preparation p =
      service.prepare(rows("s", "[1, 2, 3, 3]") + rows("s", "3") + rows("bad", "[1]") +
                      rows("s", "[1, 2]", "arch = \"sm_80\"\n") + rows("s", "4", "arch = \"sm_90\"\n"));
  expect_error(Errc::compile_failed, {"bad N=1"}, [&] { p.wait(); });
  expect_error(Errc::compile_failed, {"bad N=1"}, [&] { p.wait(); });
  const Progress progress = p.progress();
  EXPECT_EQ(progress.total, 7u);
  EXPECT_EQ(progress.done, 7u);
  EXPECT_EQ(progress.ready, 1u);
  EXPECT_EQ(progress.disk, 1u) << "its image was in memory";
  EXPECT_EQ(progress.compiled, 2u);
  EXPECT_EQ(progress.failed, 1u);
  EXPECT_EQ(progress.skipped, 2u);
  EXPECT_TRUE(t.try_get(4));
}

TEST_F(Prepare, TellsOfEachRowOneAtATime) {
  std::vector<Progress> told;
  std::atomic<int> inside{0};
  bool overlapped = false;
  {
    Service service(options());
    small(service, "s");
    PrepareOptions o;
    o.on_progress = [&](const Progress& progress) {
      overlapped |= ++inside > 1;
      told.push_back(progress);
      --inside;
      throw std::runtime_error("an engine's own fault");
    };
    const Preparation p = service.prepare(rows("s", "[1, 2, 3, 4, 5, 6]"), o);
    EXPECT_NO_THROW(p.wait());
    EXPECT_TRUE(p.wait_for(0));
  }
  EXPECT_FALSE(overlapped);
  ASSERT_EQ(told.size(), 6u);
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].total, 6u);
    EXPECT_EQ(told[i].done, i + 1);
    EXPECT_EQ(told[i].compiled, i + 1);
  }
}

TEST_F(Prepare, DestructionCancelsWhatHasNotBegunAndNobodyIsToldAfterIt) {
  std::atomic<int> told{0};
  Options few = held();
  few.jobs = 1;
  Service service(few);
  small(service, "s");
  PrepareOptions o;
  o.on_progress = [&](const Progress&) { ++told; };
  {
    const Preparation p = service.prepare(rows("s", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]"), o);
    EXPECT_FALSE(p.wait_for(0.02));
  }
  const int then = told;
  let_compile();
  EXPECT_TRUE(comes_true([] { return threads_named("kiln-behind") == 0; }));
  EXPECT_EQ(told, then);
  EXPECT_LE(service.stats().compiles, 3u) << "what three threads had begun";
}

TEST_F(Prepare, OneThatIsAssignedOverIsCancelledBeforeItsCallbackGoes) {
  Service service(held());
  small(service, "s");
  PrepareOptions o;
  const auto calls = std::make_shared<std::atomic<int>>(0);
  o.on_progress = [calls](const Progress&) { ++*calls; };
  Preparation p = service.prepare(rows("s", "[1, 2, 3, 4]"), o);
  o.on_progress = nullptr;
  p = service.prepare(rows("s", "[5]"), o);
  const int then = *calls;
  let_compile();
  EXPECT_EQ(p.wait().compiled, 1u);
  EXPECT_TRUE(comes_true([] { return threads_named("kiln-behind") == 0; }));
  EXPECT_EQ(*calls, then);
}

TEST_F(Prepare, ADeadlineEndsTheWaitAndWhatHasNotBegun) {
  Options few = held();
  few.jobs = 1;
  Service service(few);
  small(service, "s");
  PrepareOptions o;
  o.deadline_s = 0.1;
  const Preparation p = service.prepare(rows("s", "[1, 2, 3, 4, 5, 6]"), o);
  expect_error(Errc::deadline, {"s N="}, [&] { p.wait(); });
  EXPECT_EQ(p.progress().failed, 6u);
  let_compile();
  EXPECT_TRUE(service.open("s").get(6)) << "it can still be had";
}

TEST_F(Prepare, WhatCanNeverBeRightFailsAtOnceAndNothingIsBegun) {
  Service service(options());
  small(service, "s");
  expect_error(Errc::unknown_template, {"absent"},
               [&] { service.prepare(rows("s", "1") + rows("absent", "1")); });
  expect_error(Errc::invalid_value, {"s", "N", "0"}, [&] { service.prepare(rows("s", "[1, 0]")); });
  expect_error(Errc::manifest, {"<plan>:1"}, [&] { service.prepare("[[prewarm\n"); });
  expect_error(Errc::io, {"absent.toml"}, [&] { service.prepare_file(tree_.at("absent.toml")); });
  PrepareOptions none;
  none.device = Device::none();
  expect_error(Errc::invalid_argument, {"KILN_UNTIL_IMAGE"}, [&] { service.prepare(rows("s", "1"), none); });
  EXPECT_EQ(service.stats().compiles, 0u);
  EXPECT_EQ(service.prepare("").wait().total, 0u) << "nothing to do is done";
}

TEST_F(Prepare, AFileIsReadAndNamedInErrors) {
  Service service(options());
  small(service, "s");
  EXPECT_EQ(service.prepare_file(tree_.write("plan.toml", rows("s", "[1, 2]"))).wait().compiled, 2u);
  expect_error(Errc::invalid_value, {"N"},
               [&] { service.prepare_file(tree_.write("bad.toml", rows("s", "0"))); });
  expect_error(Errc::manifest, {"worse.toml:2"},
               [&] { service.prepare_file(tree_.write("worse.toml", "\n= 1\n")); });
}

TEST_F(Prepare, UntilImageNeedsNoGpuAndTakesRowsOfEveryArch) {
  Service service(sealed());
  small(service, "s");
  service.seal();
  std::thread([&] {  // a thread without a context
    PrepareOptions o;
    o.until = PrepareOptions::Until::image;
    o.device = Device::none("sm_80");
    const Progress progress =
        service.prepare(rows("s", "[1, 2]") + rows("s", "[1]", "arch = \"90\"\n"), o).wait();
    EXPECT_EQ(progress.total, 3u);
    EXPECT_EQ(progress.compiled, 3u);
    EXPECT_EQ(progress.skipped, 0u);
  })
      .join();
  EXPECT_EQ(service.stats().loads, 0u);
  EXPECT_EQ(kiln_fake_calls("cuLibraryLoadData"), 0u);
  EXPECT_TRUE(comes_true([&] { return service.stats().puts == 3; }));
}

TEST_F(Prepare, CallersAndPreparationsOfOneKernelShareItsFlight) {
  Service service(held());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Preparation a = service.prepare(rows("s", "[1, 2]")), b = service.prepare(rows("s", "[2, 1]"));
  const Future f = t.get_async(1);
  let_compile();
  EXPECT_TRUE(f.get());
  a.wait(), b.wait();
  EXPECT_EQ(service.stats().compiles, 2u);
  EXPECT_EQ(service.stats().loads, 2u);
}

}  // namespace
}  // namespace kiln::testing
