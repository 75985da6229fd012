// Compile workers of a service start only when needed, share the host's slots, and are not restarted blindly.
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "compile/worker_fixture.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/time_limit.hpp"

namespace kiln::testing {
namespace {

using namespace std::chrono_literals;
using runtime::Service;

class WorkersTest : public ServiceTest {
 protected:
  static bool maps_compiler(pid_t pid) {
    return base::read_proc("/proc/" + std::to_string(pid) + "/maps").find("libnvrtc.so") != std::string::npos;
  }
};

TEST_F(WorkersTest, AProcessThatOnlyHitsStartsNoneAndNeverMapsTheCompiler) {
  compile(*std::make_unique<Service>(options()), "scale", {Dtype::f32, 7});
  ASSERT_TRUE(children().empty());
  Service service(options());
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::disk);
  EXPECT_TRUE(children().empty());
  EXPECT_FALSE(maps_compiler(::getpid()));
}

TEST_F(WorkersTest, OpeningATemplateOverAnEmptyStoreOpensTheCompilerInTheBackground) {
  Service service(options());
  service.open("scale", KILN_DEVICE_NONE, "sm_90a");
  ASSERT_TRUE(soon(50, [] { return children().size() == 1; }));
  EXPECT_TRUE(soon(100, [] { return maps_compiler(children().at(0)); }));
  EXPECT_FALSE(maps_compiler(::getpid()));
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::compiled);
  EXPECT_EQ(service.core().path().compiler().workers().view().spawned, 1u)
      << "and the compile uses that worker";
}

TEST_F(WorkersTest, ASealedServiceOverAnEmptyStoreOpensNone) {
  Options o = options();
  o.mode = Mode::sealed;
  Service service(o);
  service.open("scale", KILN_DEVICE_NONE, "sm_90a");
  EXPECT_TRUE(children().empty());
}

TEST_F(WorkersTest, DestroyingAServiceEndsACompileThatRuns) {
  write_endless();
  auto service = std::make_unique<Service>(options());
  auto& endless = service->open("endless", KILN_DEVICE_NONE, "sm_90a");
  const std::vector<Value> values{Dtype::f32, 7};
  const auto unit = source::instantiate(endless.shared_origin(),
                                        source::resolve(endless.origin().manifest, values, base::Arch{90}));
  runtime::ObtainOptions impatient;
  impatient.deadline = base::Deadline::after(500ms);
  try {
    service->core().path().obtain(unit, impatient);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::deadline) << error.what();
  }
  EXPECT_TRUE(soon(100, [&] { return service->core().path().compiler().workers().view().running == 1; }))
      << "it goes on without its caller";
  const auto start = base::Clock::now();
  service.reset();
  EXPECT_LT(base::Clock::now() - start, at_most(10s));
  EXPECT_TRUE(children().empty());
}

TEST_F(WorkersTest, ACrashIsSaidAgainForAWhileAndThenTriedAgain) {
  Options o = options();
  o.worker = tree_.write("worker", "#!/bin/sh\necho x >> \"" + tree_.at("starts") + "\"\nexit 3\n");
  std::filesystem::permissions(o.worker, std::filesystem::perms::owner_all);
  Service service(o);
  const auto starts = [&] {
    const auto file = base::read_file(tree_.at("starts"));
    return file ? std::count(file->bytes.begin(), file->bytes.end(), 'x') : 0;
  };
  const auto fails = [&] {
    try {
      compile(service, "scale", {Dtype::f32, 7});
      ADD_FAILURE();
    } catch (const CompileError& error) {
      EXPECT_EQ(error.code(), Errc::compile_crashed);
      EXPECT_NE(std::string(error.what()).find("status 3"), std::string::npos) << error.what();
    }
  };
  fails();
  const auto first = starts();
  EXPECT_GE(first, 1);
  fails();
  EXPECT_EQ(starts(), first) << "within a second it is not tried again";
  EXPECT_EQ(service.core().state().counters.remembered_failures, 1u);
  std::this_thread::sleep_for(1100ms);
  fails();
  EXPECT_GT(starts(), first);
}

/// Three processes may run 4 compiles each. The host has as many slots as cores, and at least 4.
TEST_F(WorkersTest, ProcessesOfAHostShareItsSlots) {
  constexpr int kProcesses = 3, kJobs = 4, kKeys = 8;
  struct Shared {
    std::atomic<int> running[kProcesses];
    std::atomic<int> done, most;
  };
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared{};
  Options o = options();
  o.jobs = kJobs;
  const int slots = std::max(kJobs, compile::Machine().cores());
  std::vector<pid_t> processes;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int failures = 0;
      {
        Service service(o);
        std::atomic<bool> stop{false};
        std::thread sampler([&] {
          while (!stop) {
            shared->running[p] = service.core().path().compiler().workers().view().running;
            int sum = 0;
            for (const auto& r : shared->running) sum += r;
            int most = shared->most;
            while (sum > most && !shared->most.compare_exchange_weak(most, sum)) {
            }
            std::this_thread::sleep_for(200us);
          }
        });
        std::vector<std::thread> threads;
        for (int i = 0; i < kKeys; ++i) {
          threads.emplace_back([&, i] {
            try {
              compile(service, "scale", {Dtype::f32, p * 100 + i + 1});
            } catch (const std::exception&) {
              ++failures;
            }
          });
        }
        for (std::thread& t : threads) t.join();
        stop = true;
        sampler.join();
        shared->running[p] = 0;
      }
      ::_exit(failures);
    }
    processes.push_back(pid);
  }
  for (const pid_t pid : processes) {
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_GE(shared->most, 2) << "they do run side by side";
  // A sample of another process may be 200 us old, so each process may be counted one too high.
  EXPECT_LE(shared->most, slots + slots / 4 + kProcesses - 1) << "12 could run without shared slots";
  std::printf("FIGURES %d processes with %d jobs each: at most %d compiles at once, %d slots\n", kProcesses,
              kJobs, shared->most.load(), slots);
  ::munmap(memory, sizeof(Shared));
}

}  // namespace
}  // namespace kiln::testing
