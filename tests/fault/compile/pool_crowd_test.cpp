// The pool, its admission and the host's slots when many processes fork, stop and arrive at once.
#include <sched.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <future>
#include <set>

#include "base/log.hpp"
#include "compile/pool/pool.hpp"
#include "compile/worker_fixture.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/nightly.hpp"
#include "tests/support/processes.hpp"

namespace kiln::testing {
namespace {

using compile::Admission;
using compile::Demand;
using compile::HostSlots;
using compile::Urgency;
using compile::WorkerPool;
using compile::WorkerProcess;
using Fate = WorkerProcess::Answer::Fate;
using runtime::Service;
using namespace std::chrono_literals;

class PoolCrowd : public ServiceTest {
 protected:
  static std::future<void> ask(Service& service, const std::string& name, int n,
                               Urgency urgency = Urgency::caller) {
    return std::async(std::launch::async, [&service, name, n, urgency] {
      auto& opened = service.open(name, KILN_DEVICE_NONE, "sm_90a");
      runtime::ObtainOptions options;
      options.urgency = urgency;
      const std::vector<Value> values{Dtype::f32, n};
      service.core().path().obtain(
          source::instantiate(opened.shared_origin(),
                              source::resolve(opened.origin().manifest, values, base::Arch{90})),
          options);
    });
  }
  static bool ready(const std::future<void>& answer) {
    return answer.wait_for(0s) == std::future_status::ready;
  }
};

// A child that is forked while a worker is spawned may inherit the worker's end of the socket. The socket
// then stays open when the worker dies, so the host cannot see the death there.
TEST_F(PoolCrowd, ADeadWorkerIsNoticedThoughChildrenWereForkedWhileItWasSpawned) {
  constexpr int kWorkers = 6;
  fault::Children forked;
  std::set<pid_t> known;
  std::vector<std::unique_ptr<WorkerPool>> pools;
  for (int i = 0; i < kWorkers; ++i)
    pools.push_back(std::make_unique<WorkerPool>(compile::PoolSettings{.executable = kWorker, .jobs = 1}));
  std::atomic<bool> stop{false}, forking{false};
  std::thread forker([&] {
    while (!stop && known.size() < 300) {
      known.insert(forked.start([] {
        ::pause();
        return 0;
      }));
      forking = true;
      std::this_thread::sleep_for(100us);
    }
  });
  while (!forking) std::this_thread::yield();
  for (const auto& pool : pools) pool->warm(toolkit_.compiler);
  stop = true;
  forker.join();
  std::vector<std::future<WorkerProcess::Answer>> answers;
  for (const auto& pool : pools) {
    answers.push_back(std::async(
        std::launch::async, [&] { return pool->run(request(toolkit_, kEndless), {.compile_limit = 20s}); }));
  }
  for (const auto& pool : pools) ASSERT_TRUE(soon(100, [&] { return pool->view().running == 1; }));
  std::this_thread::sleep_for(300ms);
  const auto start = base::Clock::now();
  int killed = 0;
  for (const pid_t pid : children()) killed += !known.contains(pid) && ::kill(pid, SIGKILL) == 0;
  EXPECT_EQ(killed, kWorkers);
  for (auto& answer : answers)
    EXPECT_EQ(answer.get().fate, Fate::died) << "it was noticed at the compile's limit only";
  std::printf("FIGURES %zu children forked: %d ends of workers noticed within %.0f ms\n", known.size(),
              killed, fault::ms_since(start));
}

/// The first request for a slot throws bad_alloc.
struct ThrowingSlots final : HostSlots {
  struct Free final : Request {
    std::shared_ptr<void> try_take() override { return std::make_shared<char>(); }
  };
  std::unique_ptr<Request> request(Urgency /*urgency*/) override {
    if (requests++ == 0) throw std::bad_alloc();
    return std::make_unique<Free>();
  }
  int requests = 0;
};

TEST_F(PoolCrowd, AnExceptionOfTheSlotsLeavesNoWaiterBehind) {
  ThrowingSlots slots;
  Admission admission;
  const Admission::Limits limits{1, 0, &slots, {}};
  EXPECT_THROW(admission.enter(limits, Demand{}), std::bad_alloc);
  EXPECT_EQ(admission.waiting(), 0);
  EXPECT_TRUE(admission.enter(limits, {.give_up = base::Deadline::after(20s)})) << "nobody enters any more";
}

TEST_F(PoolCrowd, ManyColdCallersStartNoMoreWorkersThanJobs) {
  constexpr int kJobs = 1, kCallers = 64;
  constexpr std::size_t kMost = kJobs + std::max(1, kJobs / 4);
  Options o = options();
  o.jobs = kJobs;
  Service service(o);
  compile(service, "scale", {Dtype::f32, 1000});
  for (const pid_t pid : children()) ::kill(pid, SIGKILL);
  ASSERT_TRUE(soon(100, [] { return children().empty(); }));
  std::barrier together(kCallers);
  std::atomic<bool> done{false};
  std::size_t most = 0;
  std::thread watcher([&] {
    while (!done) {
      most = std::max(most, children().size());
      std::this_thread::sleep_for(1ms);
    }
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      together.arrive_and_wait();
      EXPECT_NO_THROW(compile(service, "scale", {Dtype::f32, i + 1}));
    });
  }
  for (std::thread& t : callers) t.join();
  done = true;
  watcher.join();
  EXPECT_GE(most, 1u);
  EXPECT_LE(most, kMost);
  std::printf("FIGURES %d cold callers, %d job: at most %zu workers at once, %d started\n", kCallers, kJobs,
              most, static_cast<int>(service.core().path().compiler().workers().view().spawned));
}

TEST_F(PoolCrowd, AStoppedProcessDoesNotStopTheColdMissesOfOthers) {
  KILN_NIGHTLY_ONLY();
  constexpr int kPeers = 2, kAsks = 8;
  cpu_set_t all, few;  // the host has a slot for each core of a process; 2 cores make 2 slots
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&few);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&few) < 2; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &few);
  ASSERT_EQ(::sched_setaffinity(0, sizeof few, &few), 0);
  write_endless();
  const Options o = options();
  const fault::Shared<std::array<std::atomic<int>, kPeers>> running;
  std::vector<pid_t> peers;
  fault::Children stopped;
  for (int p = 0; p < kPeers; ++p) {
    peers.push_back(stopped.start([&, p] {
      Service service(o);
      std::vector<std::future<void>> asked;
      for (int i = 1; i <= kAsks; ++i) asked.push_back(ask(service, "endless", i + 100 * p));
      for (;; std::this_thread::sleep_for(1ms))
        (*running)[static_cast<std::size_t>(p)] = service.core().path().compiler().workers().view().running;
      return 0;
    }));
  }
  int taken = 0;
  for (int unchanged = 0; unchanged < 10; std::this_thread::sleep_for(100ms)) {
    const int now = (*running)[0] + (*running)[1];
    unchanged = now >= CPU_COUNT(&few) && now == taken ? unchanged + 1 : 0;
    taken = now;
  }
  for (const pid_t peer : peers) ::kill(peer, SIGSTOP);

  std::atomic<bool> went_on_without{false};
  base::set_log_sink([&](base::Level, std::string_view line) {
    if (line.find("no compile slot of this host became free") != std::string_view::npos)
      went_on_without = true;
  });
  {
    Service service(o);
    const auto start = base::Clock::now();
    auto answer = ask(service, "scale", 2);
    // The request waits 10 s for a slot, then goes on without one.
    EXPECT_EQ(answer.wait_for(60s), std::future_status::ready) << "he waits for as long as they are stopped";
    std::printf("FIGURES %d compiles of stopped processes hold all slots: served after %.1f s\n", taken,
                fault::ms_since(start) / 1000);
    stopped.end();
    EXPECT_NO_THROW(answer.get());
  }
  base::set_log_sink({});
  EXPECT_TRUE(went_on_without) << "there was a slot: this test has shown nothing";
  ::sched_setaffinity(0, sizeof all, &all);
}

// The bug was: each time a compile was killed for memory as the youngest, its template's estimate doubled.
TEST_F(PoolCrowd, AnInnocentTemplateIsNotThoughtToBeHugeForEver) {
  KILN_NIGHTLY_ONLY();
  static constexpr const char* kMemoryEater =
      "template <int N, int M> struct F { static const int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; "
      "};\n"
      "template <int M> struct F<0, M> { static const int v = M; };\n"
      "template <int N> __global__ void k(int* o) { *o = F<24, 1>::v; }";
  const std::uint64_t peak =
      WorkerPool({.executable = kWorker, .jobs = 1}).run(request(toolkit_), {}).peak_memory;
  ASSERT_GT(peak, 0u);
  // Room for two at the real peak, but not for two at twice the peak.
  WorkerPool pool({.executable = kWorker, .jobs = 2, .memory = peak * 3});
  const Demand innocent{.subject = "k", .memory = peak};
  const auto run_side_by_side = [&] {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&] {
        while (!stop) pool.run(request(toolkit_), innocent);
      });
    const bool two = base::poll_until(base::Deadline::after(20s), [&] { return pool.view().running == 2; });
    stop = true;
    for (std::thread& t : threads) t.join();
    return two;
  };
  EXPECT_TRUE(run_side_by_side()) << "before";
  for (int round = 0; round < 3; ++round) {
    auto eater = std::async(std::launch::async, [&] {
      return pool.run(request(toolkit_, kMemoryEater),
                      {.subject = "eater" + std::to_string(round), .memory = peak, .compile_limit = 20s});
    });
    EXPECT_TRUE(soon(100, [&] { return pool.view().running == 1; }));
    while (eater.wait_for(0s) != std::future_status::ready) pool.run(request(toolkit_), innocent);
  }
  EXPECT_GE(pool.view().killed_for_memory, 3u);
  EXPECT_TRUE(run_side_by_side()) << "since it met one that eats memory, nothing runs beside this template";
  std::printf("FIGURES killed for memory: %d\n", static_cast<int>(pool.view().killed_for_memory));
}

// Work ahead of need that joins a caller's flight must not lower the flight's place in the queue.
TEST_F(PoolCrowd, ACallersFlightStaysUrgentWhoeverJoinsIt) {
  KILN_NIGHTLY_ONLY();
  constexpr int kJoiners = 16;
  write_endless();
  Options o = options();
  o.jobs = 1;
  o.compile_deadline_s = 3;
  for (const Urgency starter : {Urgency::caller, Urgency::ahead}) {
    const int n = starter == Urgency::caller ? 2 : 3;
    Service service(o);
    auto& core = service.core();
    auto holds_the_worker = ask(service, "endless", 1);
    ASSERT_TRUE(soon(100, [&] { return core.path().compiler().workers().view().running == 1; }));
    auto first = ask(service, "scale", n, starter);
    ASSERT_TRUE(soon(100, [&] { return core.path().compiler().workers().view().waiting == 1; }));
    std::vector<std::future<void>> joiners;  // one of them is a caller
    for (int i = 0; i < kJoiners; ++i)
      joiners.push_back(ask(service, "scale", n, i == kJoiners / 2 ? Urgency::caller : Urgency::ahead));
    ASSERT_TRUE(soon(20, [&] { return core.state().counters.waits == kJoiners; }));
    auto second = ask(service, "endless", 2);  // also a caller, but later
    ASSERT_TRUE(soon(20, [&] { return core.path().compiler().workers().view().waiting == 2; }));
    EXPECT_FALSE(ready(first)) << "the worker was not held for long enough";
    EXPECT_NO_THROW(first.get());
    EXPECT_FALSE(ready(second)) << "who came later went first";
    for (auto& joiner : joiners) EXPECT_NO_THROW(joiner.get());
    EXPECT_THROW(holds_the_worker.get(), Error);
    core.path().compiler().workers().stop();
    EXPECT_THROW(second.get(), Error);
  }
}

}  // namespace
}  // namespace kiln::testing
