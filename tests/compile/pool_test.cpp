// The worker pool: when workers end, which compile goes first, and the memory and time
// that a compile may take.
#include <sys/wait.h>

#include <atomic>
#include <future>
#include <mutex>

#include "compile/pool/pool.hpp"
#include "compile/worker_fixture.hpp"
#include "support/nightly.hpp"
#include "support/time_limit.hpp"

namespace kiln::testing {
namespace {

using compile::Demand;
using compile::Urgency;
using compile::WorkerPool;
using compile::WorkerProcess;
using Fate = WorkerProcess::Answer::Fate;
using Status = compile::WorkerResponse::Status;
using namespace std::chrono_literals;

/// Starts a compile that occupies its worker until the worker is killed at `limit`.
std::future<WorkerProcess::Answer> occupy(WorkerPool& pool, const toolchain::Toolkit& toolkit,
                                          base::Clock::duration limit,
                                          const std::atomic<Urgency>* urgency = nullptr) {
  auto out = std::async(std::launch::async, [&pool, &toolkit, limit, urgency] {
    return pool.run(request(toolkit, kEndless), {.compile_limit = limit, .urgency = urgency});
  });
  EXPECT_TRUE(soon(100, [&] { return pool.view().running > 0; }));
  return out;
}

TEST(WorkerPool, SendsIdleWorkersAwayAndLeavesNoZombie) {
  KILN_REAL_TOOLKIT(toolkit);
  const auto before = open_descriptors();
  WorkerPool pool({.executable = kWorker, .jobs = 2, .idle = 300ms});
  ASSERT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok);
  EXPECT_EQ(children().size(), 1u);
  EXPECT_TRUE(soon(50, [] { return children().empty(); })) << "the worker stayed, or became a zombie";
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok) << "and another comes when needed";
  EXPECT_EQ(pool.view().spawned, 2u);
}

TEST(WorkerPool, ReapsAWorkerThatWasKilledWhileIdle) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 1});
  ASSERT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok);
  ::kill(children().at(0), SIGKILL);
  EXPECT_TRUE(soon(50, [] { return children().empty(); })) << "nobody asks, and it must not stay a zombie";
}

TEST(WorkerPool, KeepsAWorkerWhoseSpawningThreadEnded) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 1});
  std::thread([&] { EXPECT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok); }).join();
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok);
  EXPECT_EQ(pool.view().spawned, 1u);
}

TEST(WorkerPool, StopEndsWhatRunsAndWhoWaits) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 1});
  auto running = occupy(pool, toolkit, 60s);
  auto waiting = std::async(std::launch::async, [&] { return pool.run(request(toolkit), {}); });
  EXPECT_TRUE(soon(50, [&] { return pool.view().waiting == 1; }));
  const auto start = base::Clock::now();
  pool.stop();
  EXPECT_EQ(running.get().fate, Fate::cancelled);
  EXPECT_EQ(waiting.get().fate, Fate::cancelled);
  EXPECT_LT(base::Clock::now() - start, at_most(10s)) << "not after the minute that it may take";
  EXPECT_EQ(pool.run(request(toolkit), {}).fate, Fate::cancelled);
}

TEST(WorkerPool, WorksInAForkedChildBesideTheParents) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer lets a child of a threaded process start no threads";
#endif
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 1});
  ASSERT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok);
  auto running = occupy(pool, toolkit, 3s);  // its thread holds locks that a child must not touch
  const pid_t child = ::fork();
  if (child == 0) {
    const auto answer = pool.run(request(toolkit), {.compile_limit = 60s});
    ::_exit(answer.fate == Fate::answered && answer.response.status == Status::ok && children().size() == 1
                ? 0
                : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(running.get().fate, Fate::timed_out) << "the parent's compile went on to its deadline";
  EXPECT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok);
}

TEST(WorkerPool, WorksInAHostThatIgnoresItsChildren) {
  KILN_REAL_TOOLKIT(toolkit);
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  {
    WorkerPool pool({.executable = kWorker, .jobs = 1});
    EXPECT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok);
    EXPECT_EQ(pool.run(request(toolkit, kEndless), {.compile_limit = 1s}).fate, Fate::timed_out);
    EXPECT_EQ(pool.run(request(toolkit), {}).response.status, Status::ok);
  }
  // The kernel wakes a waiter a moment before it removes such a child from its lists.
  EXPECT_TRUE(soon(50, [] { return children().empty(); }));
  ::signal(SIGCHLD, before);
}

TEST(WorkerPool, ACallerGoesBeforeWorkAheadOfNeed) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 1});
  const std::atomic<Urgency> ahead{Urgency::ahead};
  std::atomic<Urgency> raised{Urgency::ahead};
  // Takes both places: the only regular one, and the additional one that callers have.
  auto first = occupy(pool, toolkit, 2s, &ahead);
  auto second = std::async(std::launch::async,
                           [&] { return pool.run(request(toolkit, kEndless), {.compile_limit = 2s}); });
  ASSERT_TRUE(soon(50, [&] { return pool.view().running == 2; }))
      << "a caller has a place beside work ahead of need";
  std::mutex mutex;
  std::vector<std::string> order;
  std::vector<std::thread> threads;
  const auto queue = [&](const char* name, const std::atomic<Urgency>* urgency) {
    const int waiting = pool.view().waiting;
    threads.emplace_back([&, name, urgency] {
      EXPECT_EQ(pool.run(request(toolkit), {.urgency = urgency}).response.status, Status::ok);
      const std::lock_guard lock(mutex);
      order.emplace_back(name);
    });
    ASSERT_TRUE(soon(50, [&] { return pool.view().waiting == waiting + 1; }));
  };
  queue("ahead", &ahead);
  queue("raised", &raised);
  queue("caller", nullptr);
  raised = Urgency::caller;
  pool.reconsider();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<std::string>{"raised", "caller", "ahead"}));
  first.get(), second.get();
}

/// Takes gigabytes within seconds, as the compiler keeps each instantiation.
constexpr const char* kMemoryEater =
    "template <int N, int M> struct F { static const int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; "
    "};\n"
    "template <int M> struct F<0, M> { static const int v = M; };\n"
    "template <int N> __global__ void k(int* o) { *o = F<24, 1>::v; }";

TEST(WorkerPool, KillsACompileThatTakesMoreThanThePoolMay) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 2, .memory = 400'000'000});
  const auto answer = pool.run(request(toolkit, kMemoryEater),
                               {.subject = "eater", .memory = 110'000'000, .compile_limit = 60s});
  EXPECT_EQ(answer.fate, Fate::out_of_memory) << answer.how << answer.response.log;
  EXPECT_EQ(pool.view().killed_for_memory, 1u);
  EXPECT_EQ(pool.run(request(toolkit), {.subject = "k"}).response.status, Status::ok);
}

TEST(WorkerPool, TriesAKilledOneAgainWithTheMachineForItself) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 2, .memory = 400'000'000});
  auto eater = std::async(std::launch::async, [&] {
    return pool.run(request(toolkit, kMemoryEater),
                    {.subject = "eater", .memory = 110'000'000, .compile_limit = 20s});
  });
  EXPECT_TRUE(soon(50, [&] { return pool.view().running == 1; }));
  std::vector<WorkerProcess::Answer> others;
  for (int i = 0; i < 200 && eater.wait_for(0s) != std::future_status::ready; ++i)
    others.push_back(pool.run(request(toolkit), {.subject = "k", .memory = 110'000'000}));
  EXPECT_EQ(eater.get().fate, Fate::out_of_memory);
  for (const auto& other : others) {
    EXPECT_EQ(other.fate, Fate::answered) << "the youngest was killed, and came again: " << other.how;
  }
  EXPECT_FALSE(others.empty());
}

TEST(WorkerPool, TellsHowMuchACompileTook) {
  KILN_REAL_TOOLKIT(toolkit);
  WorkerPool pool({.executable = kWorker, .jobs = 1});
  const auto small = pool.run(request(toolkit), {});
  EXPECT_GT(small.peak_memory, 50u << 20);
  EXPECT_LT(small.peak_memory, 400u << 20);
}

TEST(Worker, EndsAtItsLimitOfAddressSpaceAndSaysMemory) {
  KILN_NIGHTLY_ONLY();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the worker of a sanitizer build has no limit of address space";
#endif
  KILN_REAL_TOOLKIT(toolkit);
  auto worker = WorkerProcess::spawn({.executable = kWorker, .address_space = std::uint64_t{1500} << 20});
  const auto answer = worker->ask(request(toolkit, kMemoryEater), base::Deadline::after(60s));
  if (answer.fate == Fate::answered)
    EXPECT_EQ(answer.response.status, Status::out_of_memory)
        << answer.response.message << answer.response.log;
  else
    EXPECT_NE(answer.how.find("memory"), std::string::npos) << answer.how;
}

TEST(Worker, EndsByItselfAtItsLimitOfCpuTime) {
  KILN_REAL_TOOLKIT(toolkit);
  auto worker = WorkerProcess::spawn({.executable = kWorker, .cpu_seconds = 1});
  ASSERT_EQ(worker->ask(request(toolkit), base::Deadline::after(60s)).fate, Fate::answered);
  const auto answer = worker->ask(request(toolkit, kEndless), base::Deadline::after(60s));
  EXPECT_EQ(answer.fate, Fate::died);
  EXPECT_NE(answer.how.find("CPU time"), std::string::npos) << answer.how;
}

TEST(Worker, OpensTheCompilerBeforeTheFirstRequest) {
  KILN_REAL_TOOLKIT(toolkit);
  auto worker = WorkerProcess::spawn({.executable = kWorker, .compiler = toolkit.compiler});
  EXPECT_TRUE(soon(100, [&] {
    return base::read_proc("/proc/" + std::to_string(worker->pid()) + "/maps").find("libnvrtc.so") !=
           std::string::npos;
  }));
}

TEST(Worker, IsLinkedDynamicallyAgainstLibcOnly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the worker of a sanitizer build is linked to its runtime";
#endif
  const auto bytes = base::read_file(kWorker)->bytes;
  EXPECT_NE(bytes.find("libc.so.6"), std::string::npos) << "a static one crashes in dlopen";
  // The dynamic string table has the names of needed libraries, one after another, each ending with a zero.
  for (const char* library :
       {"libstdc++.so.6", "libgcc_s.so.1", "liblmdb.so.0", "libspdlog.so.1.10", "libfmt.so.9"})
    EXPECT_EQ(bytes.find(std::string(1, '\0') + library + '\0'), std::string::npos) << library;
}

/// KILN_SOAK_COMPILES=2000 makes a long run.
TEST(WorkerPool, StaysFlatOverManyCompiles) {
  KILN_REAL_TOOLKIT(toolkit);
  const char* asked = std::getenv("KILN_SOAK_COMPILES");
  const int compiles = asked ? std::atoi(asked) : 60;
  WorkerPool pool({.executable = kWorker, .jobs = 2});
  const auto resident = [] {
    unsigned long size = 0, pages = 0;
    std::istringstream(base::read_proc("/proc/self/statm")) >> size >> pages;
    std::uint64_t workers = 0;
    for (const pid_t pid : children()) {
      std::istringstream(base::read_proc("/proc/" + std::to_string(pid) + "/statm")) >> size >> pages;
      workers += pages * 4096;
    }
    return workers;
  };
  const auto compile_some = [&](int from, int to) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (int i = from + t; i < to; i += 2) {
          auto r = request(toolkit);
          r.name_expressions = {"k<" + std::to_string(i) + ">"};
          EXPECT_EQ(pool.run(r, {}).response.status, Status::ok);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  compile_some(0, compiles / 3);
  const auto descriptors = open_descriptors();
  const auto processes = children().size();
  const auto memory = resident();
  compile_some(compiles / 3, compiles);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(children().size(), processes);
  EXPECT_LE(pool.view().spawned, 2u);
  EXPECT_LT(resident(), memory + memory / 4) << "grew from " << memory;
  std::printf("FIGURES %d compiles: workers' memory %zu -> %zu MB, %td descriptors, %zu processes\n",
              compiles, static_cast<std::size_t>(memory >> 20), static_cast<std::size_t>(resident() >> 20),
              descriptors, processes);
}

}  // namespace
}  // namespace kiln::testing
