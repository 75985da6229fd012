// Events: which events an engine gets, when, and which calls its callback may make.
#include "runtime/core_fixture.hpp"
#include "support/child.hpp"

namespace kiln::testing {
namespace {

using Kind = Event::Kind;

class EventsOf : public Core {
 protected:
  static std::vector<Kind> kinds(const std::vector<Told::One>& events) {
    std::vector<Kind> out;
    for (const Told::One& one : events) out.push_back(one.kind);
    return out;
  }
  Told told_;
};

TEST_F(EventsOf, AColdGetStartsFinishesAndLoads) {
  Options o = options();
  o.on_event = told_.listener();
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  EXPECT_TRUE(told_.all().empty());
  t.get(1);
  const auto all = told_.all();
  ASSERT_EQ(kinds(all), (std::vector{Kind::compile_started, Kind::compile_finished, Kind::loaded}));
  for (const Told::One& one : all) {
    EXPECT_EQ(one.specialization, "s N=1");
    EXPECT_EQ(one.arch, "sm_90a");
    EXPECT_EQ(one.message, "");
  }
  EXPECT_EQ(all[0].milliseconds, 0);
  EXPECT_GT(all[1].milliseconds, 0);
  EXPECT_EQ(all[2].bytes, t.compile(1).cubin().size());
  t.get(1);
  EXPECT_EQ(told_.all().size(), 3u) << "a ready kernel is no event";
}

TEST_F(EventsOf, ADiskHitOnlyLoads) {
  {
    Service service(options());
    small(service, "s");
    service.open("s", Device::none()).compile(1);
  }
  Options o = options();
  o.on_event = told_.listener();
  Service service(o);
  small(service, "s");
  service.open("s").get(1);
  EXPECT_EQ(kinds(told_.all()), std::vector{Kind::loaded});
}

TEST_F(EventsOf, AFailureCarriesItsFirstLine) {
  Options o = options();
  o.on_event = told_.listener();
  Service service(o);
  broken(service, "bad");
  std::string text;
  try {
    service.open("bad").get(1);
    FAIL();
  } catch (const CompileError& error) {
    text = error.what();
  }
  const auto all = told_.all();
  ASSERT_EQ(kinds(all), (std::vector{Kind::compile_started, Kind::compile_failed}));
  EXPECT_FALSE(all[1].message.empty());
  EXPECT_EQ(all[1].message.find('\n'), std::string::npos);
  EXPECT_EQ(text.rfind(all[1].message, 0), 0u) << text;
  EXPECT_THROW(service.open("bad").get(1), CompileError);
  EXPECT_EQ(told_.all().size(), 2u) << "what is remembered is not compiled";
}

TEST_F(EventsOf, ASecondThreadWaits) {
  Options o = held();
  o.on_event = told_.listener();
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Future first = t.get_async(1);
  EXPECT_TRUE(comes_true([&] { return told_.count(Kind::compile_started) == 1; }));
  std::thread second([&] {
    cu().cuCtxSetCurrent(contexts_[0]);
    EXPECT_TRUE(t.get(1));
  });
  EXPECT_TRUE(comes_true([&] { return told_.count(Kind::wait_started) == 1; }));
  EXPECT_EQ(told_.count(Kind::wait_finished), 0u);
  let_compile();
  second.join();
  first.get();
  const auto waited = told_.of(Kind::wait_finished);
  ASSERT_EQ(waited.size(), 1u);
  EXPECT_GT(waited[0].milliseconds, 0);
  EXPECT_EQ(told_.count(Kind::compile_finished), 1u);
}

TEST_F(EventsOf, AWaitThatEndsAtItsDeadlineHasEnded) {
  Options o = held();
  o.on_event = told_.listener();
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Future first = t.get_async(1);
  EXPECT_TRUE(comes_true([&] { return told_.count(Kind::compile_started) == 1; }));
  expect_error(Errc::deadline, {}, [&] { t.get(GetOptions(0.05), 1); });
  EXPECT_EQ(told_.count(Kind::wait_started), 1u);
  EXPECT_EQ(told_.count(Kind::wait_finished), 1u);
}

TEST_F(EventsOf, AnotherProcessesCompileIsWaitedForAndSaidSo) {
  const Options theirs = held();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kStuckSeconds);
    try {
      Service service(theirs);
      small(service, "s");
      service.open("s", Device::none()).compile(1);
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  Options o = options();
  o.on_event = told_.listener();
  Service service(o);
  small(service, "s");
  // The holder of the flight's lock has written its key to the board.
  EXPECT_TRUE(comes_true([&] {
    std::ifstream in("/dev/shm/" + flight_name(o.cache_dir) + ".board");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return text.find("s N=1") != std::string::npos;
  }));
  const Future f = service.open("s").get_async(1);
  EXPECT_TRUE(comes_true([&] { return told_.count(Kind::wait_started) == 1; }));
  EXPECT_EQ(told_.count(Kind::compile_started), 0u);
  let_compile();
  EXPECT_EQ(f.get().info().outcome, KILN_OUTCOME_WAITED);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(kinds(told_.all()), (std::vector{Kind::wait_started, Kind::wait_finished, Kind::loaded}));
  EXPECT_GT(told_.of(Kind::wait_finished)[0].milliseconds, 0);
  EXPECT_EQ(service.stats().compiles, 0u);
  EXPECT_EQ(service.stats().waits, 1u);
}

TEST_F(EventsOf, TheCallbackMayCallKilnAndMayThrow) {
  std::atomic<int> called{0};
  Service* of = nullptr;
  const KernelTemplate* t = nullptr;
  Options o = options();
  o.on_event = [&](const Event& e) {
    ++called;
    of->stats();
    of->fingerprint();
    of->missing();
    t->try_get(1);
    if (e.kind == Kind::loaded && e.specialization == "s N=1" && !t->try_get(1))
      ADD_FAILURE() << "it is told of what is there";
    if (e.kind == Kind::compile_started) t->prefetch(2);
    throw std::runtime_error("an engine's own fault");
  };
  Service service(o);
  of = &service;
  small(service, "s");
  const KernelTemplate opened = service.open("s");
  t = &opened;
  EXPECT_TRUE(opened.get(1));
  EXPECT_TRUE(comes_true([&] { return static_cast<bool>(opened.try_get(2)) && called >= 6; }));
}

TEST_F(EventsOf, NobodyIsToldAfterDestruction) {
  auto alive = std::make_shared<std::atomic<bool>>(true);
  const auto late = std::make_shared<std::atomic<int>>(0);
  {
    Options o = held();
    o.on_event = [alive, late](const Event&) { *late += !*alive; };
    Service service(o);
    small(service, "s");
    const KernelTemplate t = service.open("s");
    for (int n = 1; n <= 10; ++n) t.prefetch(n);
  }
  *alive = false;
  let_compile();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(*late, 0);
}

TEST_F(EventsOf, AServiceThatIsAssignedOverGoesBeforeItsCallback) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  Options o = held();
  o.on_event = [calls](const Event&) { ++*calls; };
  Service service(o);
  small(service, "s");
  service.open("s").prefetch(1);
  EXPECT_TRUE(comes_true([&] { return *calls >= 1; }));
  service = Service(options());
  const int then = *calls;
  small(service, "s");
  EXPECT_TRUE(service.open("s").get(1));
  EXPECT_EQ(*calls, then);
}

TEST_F(EventsOf, WhatLeavesTheStoreIsCounted) {
  Options o = options();
  o.on_event = told_.listener();
  o.cache_max_size = "4M";
  Service service(o);
  small(service, "big", "",
        "static __device__ unsigned char table[400000] = {1, 2, 3}; out[n] = table[N + n];");
  const KernelTemplate t = service.open("big", Device::none());
  std::uint64_t puts = 0;
  for (int n = 1; n <= 24 && told_.count(Kind::evicted) == 0; ++n) {
    t.compile(n);
    ++puts;
    ASSERT_TRUE(comes_true([&] { return service.stats().puts + service.stats().puts_skipped == puts; }));
  }
  const auto evicted = told_.of(Kind::evicted);
  ASSERT_GE(evicted.size(), 1u);
  EXPECT_GE(evicted[0].count, 1u);
  EXPECT_EQ(evicted[0].count, service.stats().evictions);
}

}  // namespace
}  // namespace kiln::testing
