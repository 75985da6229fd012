// Edge cases of calls: the seal, deadlines, forks, the C ABI.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>

#include "runtime/core_fixture.hpp"
#include "support/child.hpp"

namespace kiln::testing {
namespace {

class CallEdges : public Core {
 protected:
  std::string slurp(const std::string& path) const {
    std::ifstream in(path);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
};

TEST_F(CallEdges, NothingIsLoadedBehindAfterTheSeal) {
  {
    Service builder(options());
    small(builder, "s");
    const KernelTemplate t = builder.open("s", Device::none());
    for (int n = 1; n <= 12; ++n) t.compile(n);
  }
  Options o = options();
  o.mode = Mode::sealed;
  o.jobs = 1;
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  kiln_gate_shut(1);
  for (int n = 1; n <= 12; ++n) t.prefetch(n);
  ASSERT_TRUE(comes_true([] { return kiln_gate_waiting() >= 3; }));
  service.seal();
  const Stats sealed = service.stats();
  kiln_gate_shut(0);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const Stats after = service.stats();
  EXPECT_EQ(after.disk_hits, sealed.disk_hits) << "read from disk after the seal";
}

TEST_F(CallEdges, ASealedMissTouchesNoFileAlsoWhileRecording) {
  Options o = options();
  o.mode = Mode::sealed;
  o.record = tree_.at("record.toml");
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  service.seal();
  const std::string before = slurp(o.record);
  expect_error(Errc::not_ready, {"s N=3"}, [&] { t.get(3); });
  EXPECT_EQ(slurp(o.record), before);
}

TEST_F(CallEdges, AFutureEndsAtItsDeadlineAlsoWhenTheLoadIsHeldUp) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  service.open("s", Device::none()).compile(1);
  kiln_gate_shut(1);
  const kiln_value one{KILN_VALUE_INTEGER, 0, 1, nullptr};
  kiln_get get{sizeof get, 0.3, nullptr, 0};
  kiln_future* raw = nullptr;
  ASSERT_EQ(kiln_template_get_async(t.handle(), nullptr, &one, 1, &get, &raw), KILN_OK);
  {
    const Future future(raw);
    EXPECT_TRUE(future.wait_for(3)) << "ten times its deadline";
    kiln_gate_shut(0);
    EXPECT_TRUE(future.wait_for(60));
  }
}

TEST_F(CallEdges, APreparationEndsAtItsDeadlineAlsoWhenALoadIsHeldUp) {
  Service service(options());
  small(service, "s");
  service.open("s", Device::none()).compile(1);
  kiln_gate_shut(1);
  PrepareOptions p;
  p.deadline_s = 0.3;
  const Preparation preparation = service.prepare("[[prewarm]]\ntemplate = \"s\"\nN = [1]\n", p);
  EXPECT_TRUE(preparation.wait_for(3));
  kiln_gate_shut(0);
  preparation.wait_for(60);
}

TEST_F(CallEdges, ADeadlineThatHasPassedIsNotNone) {
  Service service(held());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  std::atomic<int> ended{0};
  std::thread caller([&] {
    cu().cuCtxSetCurrent(contexts_[0]);
    try {
      t.get(GetOptions(-0.001), 1);
      ended = 1;
    } catch (const Error& e) {
      ended = 2;
    }
  });
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_NE(ended, 0) << "two seconds after a deadline that had passed before the call";
  let_compile();
  caller.join();
  EXPECT_EQ(ended, 2);
}

TEST_F(CallEdges, AFloatThatDoesNotFitIsRefused) {
  Service service(options());
  add(service, "g",
      "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n[[arg]]\nname = \"x\"\ntype = "
      "\"f32\"\n"
      "[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n",
      "template <int N> __global__ void f(float* out, float x) { *out = x; }\n");
  const Kernel k = service.open("g").get(1);
  expect_error(Errc::invalid_argument, {"'x'", "does not fit f32"},
               [&] { k(nullptr, device_pointer<float>(), 1e300); });
  k(nullptr, device_pointer<float>(), HUGE_VAL);
  EXPECT_EQ(argument<float>(last_launch(), 1), HUGE_VALF) << "infinity is itself";
}

TEST_F(CallEdges, ATimeThatIsNoNumberIsRefused) {
  Service service(options());
  small(service, "s");
  const kiln_value one{KILN_VALUE_INTEGER, 0, 1, nullptr};
  kiln_future* future = nullptr;
  const kiln_kernel* out = nullptr;
  ASSERT_EQ(kiln_template_get_async(service.open("s").handle(), nullptr, &one, 1, nullptr, &future), KILN_OK);
  EXPECT_EQ(kiln_future_wait(future, NAN, &out), static_cast<kiln_status>(Errc::invalid_argument));
  EXPECT_EQ(kiln_future_wait(future, -1, &out), KILN_OK);
  kiln_future_destroy(future);
}

TEST_F(CallEdges, OnlyDevicesThereAreAreTaken) {
  Service service(options());
  small(service, "s");
  kiln_template* out = nullptr;
  EXPECT_NE(kiln_service_open(service.handle(), "s", -5, nullptr, &out), KILN_OK);
  EXPECT_NE(kiln_service_open(service.handle(), "s", KILN_DEVICE_CURRENT, "sm_80", &out), KILN_OK)
      << "an arch that is not the device's";
}

TEST_F(CallEdges, AScopeOfAnotherServiceIsRefused) {
  Service a(options()), b(options());
  small(a, "s"), small(b, "s");
  const Scope of_b = b.scope();
  EXPECT_ANY_THROW(a.prepare(of_b, "[[prewarm]]\ntemplate = \"s\"\nN = [1]\n").wait());
}

TEST_F(CallEdges, AFutureInAForkedChildIsAnErrorAndNoHang) {
  Service service(options());
  small(service, "s");
  kiln_gate_shut(1);
  const Future future = service.open("s").get_async(1);
  ASSERT_TRUE(comes_true([] { return kiln_gate_waiting() == 1; }));
  const int child = in_child([&] {
    ::alarm(5);
    try {
      future.get();
      return 1;
    } catch (const Error&) {
      return 0;
    }
  });
  EXPECT_EQ(child, 0) << "142: it was stuck";
  kiln_gate_shut(0);
  future.get();
}

TEST_F(CallEdges, WaitForInAForkedChildDoesNotSayDone) {
  Service service(options());
  small(service, "s");
  kiln_gate_shut(1);
  const Preparation p = service.prepare("[[prewarm]]\ntemplate = \"s\"\nN = [1]\n");
  EXPECT_EQ(in_child([&] { return p.wait_for(0) ? 1 : 0; }), 0);
  kiln_gate_shut(0);
  p.wait();
}

TEST_F(CallEdges, AnOnProgressThatEndsItsPreparationOutlivesItsCall) {
  Service service(options());
  small(service, "s");
  std::optional<Preparation> p;
  std::atomic<bool> have{false}, told{false};
  std::atomic<int> alive{-1};
  auto sentinel = std::make_shared<int>(1);
  PrepareOptions o;
  std::weak_ptr<int> watch = sentinel;
  o.on_progress = [&, keep = std::move(sentinel)](const Progress&) {
    while (!have) std::this_thread::yield();
    p.reset();
    alive = watch.expired() ? 0 : 1;  // 1: the callback's captures are still alive
    told = true;
  };
  p = service.prepare("[[prewarm]]\ntemplate = \"s\"\nN = [1]\n", o);
  o.on_progress = nullptr;
  have = true;
  ASSERT_TRUE(comes_true([&] { return told.load(); }));
  EXPECT_EQ(alive, 1) << "the function was destroyed while it ran";
}

TEST_F(CallEdges, MissingIsWhatTheSealRefused) {
  Service service(options());
  small(service, "s");
  PrepareOptions o;
  o.may_compile = false;
  service.prepare("[[prewarm]]\ntemplate = \"s\"\nN = [1]\n", o).wait_for(60);
  EXPECT_EQ(service.missing(), "") << "mode jit, not sealed";
}

TEST_F(CallEdges, NobodyIsHisOwnFallback) {
  Service service(options());
  small(service, "p", "fallback = \"q\"");
  small(service, "q", "fallback = \"p\"");
  EXPECT_ANY_THROW(service.open("p"));
  EXPECT_ANY_THROW(service.open("q"));
}

TEST_F(CallEdges, ADiskHitWithADeadlineDoesNotQueueBehindCompiles) {
  {
    Service builder(options());
    small(builder, "s");
    builder.open("s", Device::none()).compile(1);
  }
  Service service(held());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  std::vector<Future> futures;
  for (int n = 1000; n < 1256; ++n) futures.push_back(t.get_async(n));
  EXPECT_NO_THROW(t.get(GetOptions(5.0), 1));
  let_compile();
  futures[0].get();
}

}  // namespace
}  // namespace kiln::testing
