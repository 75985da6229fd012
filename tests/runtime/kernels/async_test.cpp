// Kernels that are made in the background: get_async and prefetch.
#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class Async : public Core {};

TEST_F(Async, AReadyKernelIsThereAtOnce) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Kernel k = t.get(2);
  EXPECT_EQ(driver_calls([&] {
              const Future f = t.get_async(2);
              EXPECT_TRUE(f.ready());
              EXPECT_EQ(f.get().handle(), k.handle());
              EXPECT_EQ(f.get().handle(), k.handle()) << "again";
            }),
            0u);
}

TEST_F(Async, AColdKernelIsCompiledAndLoadedAndThenReady) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Kernel k = t.get_async({{"N", 3}}).get();
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_COMPILED);
  EXPECT_EQ(t.try_get(3).handle(), k.handle());
  k(nullptr, device_pointer<float>(), 1);
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 1u);
}

TEST_F(Async, BadValuesAndTheSealAreErrorsOfTheCallItself) {
  Options o = options();
  o.mode = Mode::sealed;
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  expect_error(Errc::invalid_value, {"s", "N", "0"}, [&] { t.get_async(0); });
  expect_error(Errc::unknown_parameter, {"M"}, [&] { t.get_async({{"M", 1}}); });
  service.seal();
  EXPECT_EQ(driver_calls([&] {
              expect_error(Errc::not_ready, {"sealed", "s N=1"}, [&] { t.get_async(1); });
              expect_error(Errc::not_ready, {"sealed", "s N=2"}, [&] { t.prefetch(2); });
            }),
            0u);
  expect_error(Errc::no_driver, {"without a device"},
               [&] { service.open("s", Device::none()).get_async(1); });
}

TEST_F(Async, WithoutTheSealModeSealedRefusesInTheFuture) {
  Options o = options();
  o.mode = Mode::sealed;
  Service service(o);
  small(service, "s");
  const Future f = service.open("s").get_async(1);
  expect_error(Errc::not_ready, {"s N=1"}, [&] { f.get(); });
  EXPECT_EQ(service.stats().compiles, 0u);
}

TEST_F(Async, EverybodyGetsTheSameCompileError) {
  Service service(held());
  broken(service, "bad");
  const KernelTemplate t = service.open("bad");
  const Future first = t.get_async(1), second = t.get_async(1);
  std::thread open([&] { let_compile(); });
  const std::string text =
      expect_error(Errc::compile_failed, {"bad N=1", "this_is_not_declared"}, [&] { first.get(); });
  open.join();
  EXPECT_EQ(expect_error(Errc::compile_failed, {}, [&] { second.get(); }), text);
  EXPECT_EQ(expect_error(Errc::compile_failed, {}, [&] { first.get(); }), text) << "again";
  EXPECT_EQ(expect_error(Errc::compile_failed, {}, [&] { t.get(1); }), text) << "who asks later";
  try {
    first.get();
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_EQ(error.specialization(), "bad N=1");
    EXPECT_NE(error.log().find("this_is_not_declared"), std::string::npos);
  }
  EXPECT_TRUE(first.ready()) << "an error is an end, too";
  EXPECT_EQ(service.stats().compile_failures, 1u);
}

TEST_F(Async, WorksFromAThreadWithoutAContextAndInACaptureScope) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  std::thread([&] {
    EXPECT_TRUE(t.get_async(1).get());
    toolchain::CUcontext current = nullptr;
    EXPECT_EQ(cu().cuCtxGetCurrent(&current), 0);
    EXPECT_EQ(current, nullptr) << "kiln makes none current in a caller's thread";
  }).join();
  const CaptureScope capturing;
  expect_error(Errc::not_ready, {"CaptureScope"}, [&] { t.get(2); });
  EXPECT_TRUE(t.get_async(2).get());
}

TEST_F(Async, LoadsBesideAStreamCaptureWithoutBreakingIt) {
  kiln_fake_strict_capture(1);
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const CUstream stream = make_stream();
  ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), 0);
  EXPECT_TRUE(t.get_async(2).get());
  toolchain::CUgraph graph = nullptr;
  EXPECT_EQ(cu().cuStreamEndCapture(stream, &graph), 0);
}

TEST_F(Async, WaitForTellsWhetherItHasEnded) {
  Service service(held());
  small(service, "s");
  const Future f = service.open("s").get_async(1);
  EXPECT_FALSE(f.ready());
  EXPECT_FALSE(f.wait_for(0.01));
  EXPECT_FALSE(f.ready());
  let_compile();
  EXPECT_TRUE(f.wait_for(100));
  EXPECT_TRUE(f.ready());
  EXPECT_TRUE(f.get());
}

TEST_F(Async, AFutureThatGoesEarlyLeavesTheFlightToTheOthers) {
  Service service(held());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  { const Future gone = t.get_async(1); }
  const Future stays = t.get_async(1);
  { const Future gone = t.get_async(1); }
  let_compile();
  EXPECT_TRUE(stays.get());
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 1u);
}

TEST_F(Async, ADeadlineIsItsWaitersOwn) {
  Service service(held());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Future patient = t.get_async(1), hasty = t.get_async({{"N", 1}}, GetOptions(0.05));
  expect_error(Errc::deadline, {"s N=1"}, [&] { hasty.get(); });
  EXPECT_TRUE(hasty.ready()) << "it has ended, at its deadline";
  EXPECT_TRUE(hasty.wait_for(0.01));
  expect_error(Errc::deadline, {"s N=1"}, [&] { t.get(GetOptions(0.05), 1); });
  EXPECT_FALSE(patient.ready());
  let_compile();
  EXPECT_EQ(patient.get().handle(), t.get(GetOptions(100), 1).handle());
  EXPECT_EQ(service.stats().compiles, 1u);
}

class Prefetch : public Core {};

TEST_F(Prefetch, WhatWasPrefetchedIsNotCompiledAgain) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  t.prefetch(1);
  t.prefetch({{"N", 2}});
  EXPECT_TRUE(t.get(1));
  EXPECT_TRUE(t.get(2));
  EXPECT_TRUE(comes_true([&] { return threads_named("kiln-behind") == 0 || service.stats().loads == 2; }));
  EXPECT_EQ(service.stats().compiles, 2u);
  EXPECT_EQ(service.stats().loads, 2u);
}

TEST_F(Prefetch, MakesKernelsReadyByThemselves) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  t.prefetch(1);
  EXPECT_TRUE(comes_true([&] { return static_cast<bool>(t.try_get(1)); }));
  EXPECT_EQ(driver_calls_here([&] { EXPECT_TRUE(t.get(1)); }), 0u);
}

TEST_F(Prefetch, AFailureIsAnEventAndWhatTheNextGetSays) {
  Told told;
  Options o = options();
  o.on_event = told.listener();
  Service service(o);
  broken(service, "bad");
  const KernelTemplate t = service.open("bad");
  EXPECT_NO_THROW(t.prefetch(1));
  EXPECT_TRUE(comes_true([&] { return told.count(Event::Kind::compile_failed) == 1; }));
  expect_error(Errc::compile_failed, {"bad N=1"}, [&] { t.get(1); });
  EXPECT_EQ(service.stats().compile_failures, 1u);
  expect_error(Errc::invalid_value, {"N"}, [&] { t.prefetch(0); });
}

TEST_F(Prefetch, WithoutADeviceTheImageIsInMemoryAndStore) {
  {
    Service service(options());
    small(service, "s");
    const KernelTemplate t = service.open("s", Device::none());
    t.prefetch(1);
    EXPECT_TRUE(comes_true([&] { return service.stats().puts == 1; }));
    EXPECT_EQ(t.compile(1).outcome(), Outcome::memory);
    EXPECT_EQ(service.stats().loads, 0u);
  }
  Service another(options());
  small(another, "s");
  EXPECT_EQ(another.open("s", Device::none()).compile(1).outcome(), Outcome::disk);
  EXPECT_EQ(kiln_fake_calls("cuLibraryLoadData"), 0u);
}

TEST_F(Prefetch, AThousandOfOneKernelAreOneTask) {
  Service service(held());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  for (int i = 0; i < 1000; ++i) t.prefetch(1);
  EXPECT_TRUE(comes_true([&] { return threads_named("kiln-behind") == 1; }));
  let_compile();
  EXPECT_TRUE(t.get(1));
  EXPECT_TRUE(comes_true([&] { return threads_named("kiln-behind") == 0; })) << "they leave when idle";
  const Stats stats = service.stats();
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(stats.loads, 1u);
  EXPECT_LE(stats.waits, 1u) << "the get";
  EXPECT_EQ(stats.memory_hits, 0u) << "no second task came to it";
}

TEST_F(Prefetch, ManyTakeNoMoreThreadsThanMayWork) {
  Options o = held();
  o.jobs = 2;
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  for (int n = 1; n <= 300; ++n) t.prefetch(n);
  // Two threads compile and two load. A new thread has its creator's name until it sets its own, so threads
  // of flights may be counted here, too. A thread for each of the 300 prefetches would be far more.
  EXPECT_LE(threads_named("kiln-behind"), 20);
}

TEST_F(Prefetch, ALaterGetOvertakesWhatIsQueued) {
  Told told;
  Options o = held();
  o.jobs = 1;
  o.on_event = told.listener();
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  for (int n = 1; n <= 30; ++n) t.prefetch(n);
  const Future wanted = t.get_async(99);
  let_compile();
  EXPECT_TRUE(wanted.get());
  const auto finished = told.of(Event::Kind::compile_finished);
  const auto at = std::find_if(finished.begin(), finished.end(),
                               [](const Told::One& one) { return one.specialization == "s N=99"; });
  ASSERT_NE(at, finished.end());
  EXPECT_LE(at - finished.begin(), 3) << "only what had begun came before it";
}

TEST_F(Prefetch, AServiceThatGoesDropsWhatHasNotBegun) {
  {
    Options o = held();
    o.jobs = 1;
    Service service(o);
    small(service, "s");
    const KernelTemplate t = service.open("s");
    for (int n = 1; n <= 50; ++n) t.prefetch(n);
  }
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  toolchain::CUcontext current = nullptr;
  EXPECT_EQ(cu().cuCtxGetCurrent(&current), 0);
  EXPECT_EQ(current, contexts_[0]) << "the caller's context is still current";
}

}  // namespace
}  // namespace kiln::testing
