// A kernel is compiled once and loaded once, for any callers and any kind of call.
#include <set>

#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class SingleFlight : public Core {};

TEST_F(SingleFlight, EveryWayOfAskingWithEveryDeadlineIsOneCompileAndOneLoad) {
  Service service(held());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  std::atomic<int> late{0}, served{0}, asked{0};
  std::thread open([&] {
    EXPECT_TRUE(comes_true([&] { return asked == 32 && late == 8; }));
    let_compile();
  });
  on_threads(32, [&](int i) {
    ++asked;
    switch (i % 4) {
      case 0:
        served += t.get(1) ? 1 : 0;
        break;
      case 1:
        served += t.get_async(1).get() ? 1 : 0;
        break;
      case 2:
        t.prefetch(1);
        break;
      default:
        try {
          t.get(GetOptions(0.01 * i), 1);
          ADD_FAILURE() << "the compile was held";
        } catch (const Error& error) {
          late += error.code() == Errc::deadline;
        }
    }
  });
  open.join();
  EXPECT_EQ(late, 8);
  EXPECT_EQ(served, 16);
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 1u);
  EXPECT_EQ(kiln_fake_calls("cuLibraryLoadData"), 1u);
  EXPECT_EQ(kiln_fake_live("library"), 1u);
}

TEST_F(SingleFlight, AFailureIsOneCompileAndOneTextForAll) {
  for (int round = 0; round < 5; ++round) {
    Options o = options();
    o.cache_dir = tree_.at("cache" + std::to_string(round));
    Service service(o);
    broken(service, "bad");
    const KernelTemplate t = service.open("bad");
    std::mutex mutex;
    std::set<std::string> texts;
    on_threads(32, [&](int i) {
      try {
        if (i % 2)
          t.get(1);
        else
          t.get_async(1).get();
        ADD_FAILURE() << "it compiled";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::compile_failed);
        const std::lock_guard lock(mutex);
        texts.insert(error.what());
      }
    });
    EXPECT_EQ(texts.size(), 1u);
    EXPECT_EQ(service.stats().compile_failures, 1u);
  }
}

TEST_F(SingleFlight, AnImageThatIsThereIsLoadedOnce) {
  {
    Service service(options());
    small(service, "s");
    service.open("s", Device::none()).compile(1);
  }
  kiln_gate_shut(1);
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  std::thread open([&] {
    EXPECT_TRUE(comes_true([] { return kiln_gate_waiting() > 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // time for a wrong second load
    EXPECT_EQ(kiln_gate_waiting(), 1);
    kiln_gate_shut(0);
  });
  std::vector<const kiln_kernel*> handles(32);
  on_threads(32, [&](int i) {
    handles[static_cast<std::size_t>(i)] = (i % 2 ? t.get(1) : t.get(GetOptions(100), 1)).handle();
  });
  open.join();
  for (const auto* handle : handles) EXPECT_EQ(handle, handles[0]);
  EXPECT_EQ(kiln_fake_calls("cuLibraryLoadData"), 1u);
  EXPECT_EQ(service.stats().compiles, 0u);
}

class HangingLoad : public Core {
 protected:
  void SetUp() override {
    Core::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    Service service(options());
    small(service, "s");
    for (int n = 1; n <= 2; ++n) service.open("s", Device::none()).compile(n);
  }
};

TEST_F(HangingLoad, DoesNotHoldACallerWithADeadline) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  kiln_gate_shut(1);
  expect_error(Errc::deadline, {"loading s N=1"}, [&] { t.get(GetOptions(0.05), 1); });
  const Future patient = t.get_async(1);
  expect_error(Errc::deadline, {"loading s N=1"}, [&] { t.get(GetOptions(0.05), 1); });
  EXPECT_FALSE(patient.ready());
  kiln_gate_shut(0);
  const Kernel k = patient.get();
  EXPECT_EQ(t.get(GetOptions(100), 1).handle(), k.handle());
  EXPECT_EQ(service.stats().loads, 1u);
  EXPECT_EQ(kiln_fake_calls("cuLibraryLoadData"), 1u);
}

TEST_F(HangingLoad, DoesNotHoldOtherKernelsThatAreReady) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Kernel ready = t.get(2);
  kiln_gate_shut(1);
  const Future hanging = t.get_async(1);
  EXPECT_TRUE(comes_true([] { return kiln_gate_waiting() == 1; }));
  EXPECT_EQ(t.get(2).handle(), ready.handle());
  EXPECT_EQ(t.get({{"N", "2"}}).handle(), ready.handle()) << "also by a spelling that was not asked for yet";
  service.fingerprint();
  service.adopt();
  ready(nullptr, device_pointer<float>(), 1);
  EXPECT_FALSE(hanging.ready());
  kiln_gate_shut(0);
  EXPECT_TRUE(hanging.get());
}

TEST_F(HangingLoad, AFailureAfterTheDeadlineIsForgottenAndTheNextGetWorks) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  kiln_gate_shut(1);
  kiln_fake_fail("cuLibraryLoadData", 2, 0, 1);
  expect_error(Errc::deadline, {"loading s N=1"}, [&] { t.get(GetOptions(0.05), 1); });
  const Future waits = t.get_async(1);
  kiln_gate_shut(0);
  EXPECT_TRUE(waits.wait_for(100));  // the caller may have come before the failure or after it
  EXPECT_TRUE(t.get(1));
  EXPECT_EQ(service.stats().loads, 1u);
}

// A caller with a deadline puts its load into the queue. Any thread that needs the load and may wait then
// does it itself. Otherwise kiln's threads could all wait for a task that is later in the queue, for ever.
TEST_F(SingleFlight, ManyWaitersOnKilnsThreadsDoNotWaitForATaskBehindThem) {
  for (int round = 0; round < 3; ++round) {
    Options o = held();
    o.cache_dir = tree_.at("cache" + std::to_string(round));
    std::filesystem::remove(tree_.at("go"));
    Service service(o);
    small(service, "s");
    const KernelTemplate t = service.open("s");
    std::vector<std::thread> hasty;  // callers with deadlines: they come first, and so are woken first
    for (int i = 0; i < 4; ++i)
      hasty.emplace_back([&] {
        cu().cuCtxSetCurrent(contexts_[0]);
        EXPECT_NO_THROW(t.get(GetOptions(60), 1));
      });
    EXPECT_TRUE(comes_true([&] { return service.stats().waits >= 3; }));
    std::vector<Future> futures;
    for (int i = 0; i < 300; ++i) futures.push_back(t.get_async(1));
    EXPECT_TRUE(comes_true([&] { return service.stats().waits >= 255; })) << "all of kiln's threads wait";
    let_compile();
    for (auto& thread : hasty) thread.join();
    for (const Future& f : futures) ASSERT_TRUE(f.wait_for(60)) << "round " << round;
    EXPECT_EQ(service.stats().loads, 1u);
  }
}

}  // namespace
}  // namespace kiln::testing
