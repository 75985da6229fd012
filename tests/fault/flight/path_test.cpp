// The flight and publish steps of the whole path, with real processes and a real compiler.
#include <fcntl.h>

#include "base/fd.hpp"
#include "base/hash.hpp"
#include "cache/lock/gate.hpp"
#include "kiln/error.hpp"
#include "support/places.hpp"
#include "support/time_limit.hpp"
#include "tests/runtime/service_fixture.hpp"
#include "tests/support/processes.hpp"

namespace kiln::fault {
namespace {

using namespace std::chrono_literals;
using runtime::Service;

constexpr int kMaxKeys = 64;

struct Tally {
  std::atomic<std::uint64_t> compiles, failures, remembered, waits, served, wrong, told, left, timeouts,
      skipped_gate, skipped;
  std::atomic<std::uint64_t> images[kMaxKeys];

  void add(Service& service) {
    kiln_stats s{};
    read(service.core().state().counters, s);
    compiles += s.compiles, failures += s.compile_failures, remembered += s.remembered_failures;
    waits += s.waits, left += s.convoy_left, timeouts += s.flight_timeouts;
    skipped_gate += s.skipped_gate_timeout, skipped += s.puts_skipped;
  }
};

class FlightPathTest : public kiln::testing::ServiceTest {
 protected:
  /// A worker that first sleeps for `seconds`. Its output is closed, so that a reader of
  /// the test's output does not wait for it.
  std::string slow_worker(const std::string& seconds) const {
    const std::string worker = tree_.write(
        "slow-worker-" + seconds, "#!/bin/sh\nexec >/dev/null 2>&1\nsleep " + seconds + "\nexec " +
                                      std::string(places::kBuildDirectory) + "/kiln-worker \"$@\"\n");
    std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
    return worker;
  }
  /// Asks for one key and notes the result.
  static void ask(Service& service, Tally& tally, int n) {
    try {
      const auto got = compile(service, "scale", {Dtype::f32, n});
      const std::uint64_t image = base::hash64(got.image->bytes);
      std::uint64_t seen = 0;
      if (!tally.images[n - 1].compare_exchange_strong(seen, image) && seen != image) ++tally.wrong;
      if (got.image->facts.parameters.back().value != std::to_string(n)) ++tally.wrong;
      ++tally.served;
    } catch (const CompileError& error) {
      if (error.code() == Errc::compile_failed && error.log().find("oops") != std::string::npos &&
          std::string(error.what()).find("oops") != std::string::npos &&
          error.specialization() == "scale T=f32 N=" + std::to_string(n) && !error.options().empty())
        ++tally.told;
    }
  }
  /// Runs `body` in `count` processes that leave one barrier together. Each has its own Service.
  double storm(int count, const Options& options, Tally& tally,
               const std::function<void(Service&, int)>& body) {
    const Shared<Barrier> barrier;
    Children children;
    for (int i = 0; i < count; ++i) {
      children.start([&, i] {
        {
          Service service(options);
          barrier->wait(count + 1);
          body(service, i);
          service.core().path().flush();
          tally.add(service);
        }
        return 0;
      });
    }
    barrier->wait(count + 1);
    const auto start = base::Clock::now();
    for (const int status : children.wait()) EXPECT_EQ(status, 0);
    return ms_since(start);
  }
};

TEST_F(FlightPathTest, ManyProcessesAndColdKeysCompileEachOnce) {
  const int processes = setting("KILN_SOAK_PROCESSES", 16), keys = setting("KILN_SOAK_KEYS", 8);
  ASSERT_LE(keys, kMaxKeys);
  Options o = options();
  o.jobs = 1;
  for (int repetition = 0; repetition < setting("KILN_SOAK_REPETITIONS", 3); ++repetition) {
    // Use memory where there is some. A put gives up after 2 s, and another
    // test's syncs of the disk may take longer.
    const std::string name = "cache" + std::to_string(repetition);
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    o.cache_dir = memory ? "/dev/shm/kiln-flight-path-" + std::to_string(::getpid()) + name : tree_.at(name);
    const Shared<Tally> tally;
    const double wall = storm(processes, o, *tally, [&](Service& service, int index) {
      for (int k = 0; k < keys; ++k) ask(service, *tally, 1 + (k + index) % keys);
    });
    std::printf("%lu compiles of %d keys by %d processes, %lu waits, %.0f ms\n", tally->compiles.load(), keys,
                processes, tally->waits.load(), wall);
    EXPECT_EQ(tally->compiles, static_cast<std::uint64_t>(keys));
    EXPECT_EQ(tally->served, static_cast<std::uint64_t>(keys * processes));
    EXPECT_EQ(tally->wrong, 0u);
    EXPECT_EQ(tally->failures + tally->left + tally->timeouts + tally->skipped, 0u);
    forget(o.cache_dir);
    std::filesystem::remove_all(o.cache_dir);
  }
}

TEST_F(FlightPathTest, AFailingCompileIsDoneOnceAndItsLogReachesEveryProcess) {
  tree_.write("t/scale.cu", kiln::testing::small_source("", "out[i] = oops;"));
  Options o = options();
  o.worker = slow_worker("0.5");  // long enough for all processes to wait
  const Shared<Tally> tally;
  storm(8, o, *tally, [&](Service& service, int) {
    ask(service, *tally, 1);
    ask(service, *tally, 1);
  });
  EXPECT_EQ(tally->failures, 1u);
  EXPECT_EQ(tally->told, 16u);
  EXPECT_EQ(tally->remembered, 8u) << "and each remembers it as its own";
  EXPECT_EQ(tally->served, 0u);
}

TEST_F(FlightPathTest, AFixedSourceIsCompiledAgain) {
  tree_.write("t/scale.cu", kiln::testing::small_source("", "out[i] = oops;"));
  const Shared<Tally> tally;
  Children children;
  const auto run = [&] {
    Service service(options());
    ask(service, *tally, 1);
    return 0;
  };
  children.start(run);
  children.wait();
  EXPECT_EQ(tally->told, 1u);
  tree_.write("t/scale.cu", kiln::testing::small_source("", "out[i] = T(N);"));
  children.start(run);
  children.wait();
  EXPECT_EQ(tally->served, 1u);
}

TEST_F(FlightPathTest, WhenPutsCannotLandEverybodyIsServedWithoutAQueue) {
  {
    Service service(options());
    compile(service, "scale", {Dtype::f32, 50});  // creates the store
  }
  const base::Fd gate(::open(tree_.at("cache/v1/data.mdb").c_str(), O_RDWR | O_CLOEXEC));
  const auto writer = cache::RangeLock::acquire(gate.get(), cache::kGateOffset + 2,
                                                cache::RangeLock::Mode::exclusive, base::Deadline::after(1s));
  ASSERT_TRUE(writer);
  Options o = options();
  o.jobs = 1;
  o.worker = slow_worker("0.2");
  constexpr std::uint64_t processes = 12;
  const Shared<Tally> tally;
  const double wall =
      storm(static_cast<int>(processes), o, *tally, [&](Service& service, int) { ask(service, *tally, 1); });
  std::printf("%lu compiles, %lu left the queue, %.0f ms\n", tally->compiles.load(), tally->left.load(),
              wall);
  EXPECT_EQ(tally->served, processes);
  EXPECT_EQ(tally->wrong, 0u);
  EXPECT_EQ(tally->compiles, processes);
  EXPECT_EQ(tally->skipped_gate, processes);
  EXPECT_GE(tally->left, processes - 4) << "after two holders";
}

TEST_F(FlightPathTest, TheNextCallerAfterAHolderIsKilledInItsCompileServesAtOnce) {
  Options stuck = options();
  stuck.worker = slow_worker("120");
  Children children;
  const pid_t holder = children.start([&] {
    Service service(stuck);
    compile(service, "scale", {Dtype::f32, 1});
    return 0;
  });
  Service service(options());
  ASSERT_TRUE(eventually([&] {
    const auto board = service.core().path().host_lock().board();
    return board.size() == 1 && board[0].state == cache::FlightState::compiling;
  }));
  EXPECT_EQ(service.core().path().host_lock().board()[0].subject, "scale T=f32 N=1 for sm_90a");
  std::thread killer([&] {
    std::this_thread::sleep_for(100ms);
    ::kill(holder, SIGKILL);
  });
  const auto start = base::Clock::now();
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 1}).outcome, Outcome::compiled);
  const double waited = ms_since(start) - 100;
  killer.join();
  const auto alone = base::Clock::now();
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 2}).outcome, Outcome::compiled);
  EXPECT_LT(waited, at_most(3 * ms_since(alone) + 1000));
  service.core().path().flush();
  EXPECT_EQ(service.core().state().counters.puts, 2u);
}

TEST_F(FlightPathTest, AServiceThatEndsDoesNotWaitForAnotherProcessesFlight) {
  Options stuck = options();
  stuck.worker = slow_worker("120");
  Children children;
  children.start([&] {
    Service service(stuck);
    compile(service, "scale", {Dtype::f32, 1});
    return 0;
  });
  const auto start = base::Clock::now();
  {
    Service service(options());
    ASSERT_TRUE(eventually([&] { return !service.core().path().host_lock().board().empty(); }));
    auto& opened = service.open("scale", KILN_DEVICE_NONE, "sm_90a");
    const auto unit = source::instantiate(
        opened.shared_origin(),
        source::resolve(opened.origin().manifest, std::vector<Value>{Dtype::f32, 1}, base::Arch{90}));
    runtime::ObtainOptions hurried;
    hurried.deadline = base::Deadline::after(50ms);
    EXPECT_THROW(service.core().path().obtain(unit, hurried), Error);
  }
  EXPECT_LT(ms_since(start), at_most(5'000));
}

TEST_F(FlightPathTest, AChildForkedWhileItsParentCompilesIsServed) {
  Options o = options();
  o.worker = slow_worker("1");
  Service service(o);
  std::thread caller([&] { compile(service, "scale", {Dtype::f32, 1}); });
  std::this_thread::sleep_for(300ms);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // a child that waits for the parent's flight would wait for ever
    try {
      ::_exit(compile(service, "scale", {Dtype::f32, 1}).image ? 0 : 1);
    } catch (const std::exception&) {
      ::_exit(2);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  caller.join();
}

}  // namespace
}  // namespace kiln::fault
