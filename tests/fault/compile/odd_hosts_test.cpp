// Host processes that do odd things to their workers: reap all children, fork in every state, close their
// standard descriptors, or destroy services and exit while compiles run.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <future>

#include "compile/pool/pool.hpp"
#include "compile/worker_fixture.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "tests/support/processes.hpp"

namespace kiln::testing {
namespace {

using compile::Urgency;
using compile::WorkerPool;
using compile::WorkerProcess;
using Fate = WorkerProcess::Answer::Fate;
using Status = compile::WorkerResponse::Status;
using runtime::Service;
using namespace std::chrono_literals;

class OddHosts : public ServiceTest {
 protected:
  /// Runs `body` in a child without these descriptors. Returns its result, or the text of what it threw.
  static std::string without(const std::vector<int>& descriptors, const std::function<std::string()>& body) {
    struct Said {
      char text[4096];
    };
    const fault::Shared<Said> said;
    fault::Children child;
    child.start([&] {
      for (const int fd : descriptors) ::close(fd);
      std::string text;
      try {
        text = body();
      } catch (const std::exception& error) {
        text = error.what();
      }
      std::strncpy(said->text, text.c_str(), sizeof said->text - 1);
      return 0;
    });
    EXPECT_EQ(child.wait(), std::vector<int>{0});
    return said->text;
  }
  static void ask(Service& service, int n, base::Clock::duration patience, Urgency urgency) {
    auto& opened = service.open("scale", KILN_DEVICE_NONE, "sm_90a");
    runtime::ObtainOptions options;
    options.deadline = base::Deadline::after(patience);
    options.urgency = urgency;
    const std::vector<Value> values{Dtype::f32, n};
    try {
      service.core().path().obtain(
          source::instantiate(opened.shared_origin(),
                              source::resolve(opened.origin().manifest, values, base::Arch{90})),
          options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::deadline) << error.what();
    }
  }
};

TEST_F(OddHosts, AHostWithoutStandardDescriptorsCompiles) {
  EXPECT_EQ(without({0, 1, 2},
                    [&] {
                      Service service(options());
                      compile(service, "scale", {Dtype::f32, 5});
                      return std::string();
                    }),
            "");
}

TEST_F(OddHosts, AHostWithoutStandardErrorCompiles) {
  EXPECT_EQ(without({2},
                    [&] {
                      Service service(options());
                      compile(service, "scale", {Dtype::f32, 5});
                      return std::string();
                    }),
            "");
}

// In such a host, descriptor 2 is the next file that it opens, and a compiler prints to descriptor 2.
TEST_F(OddHosts, WorkersOfAHostWithoutStandardErrorCannotWriteToTheStore) {
  const std::string seen = without({0, 1, 2}, [&] {
    Service service(options());
    compile(service, "scale", {Dtype::f32, 5});
    compile(service, "scale", {Dtype::f32, 6});
    std::string out;
    for (const pid_t worker : children()) {
      for (const auto& fd : std::filesystem::directory_iterator("/proc/" + std::to_string(worker) + "/fd")) {
        struct stat st {};
        if (::stat(fd.path().c_str(), &st) != 0) continue;
        const std::string name =
            fd.path().filename().string() + "=" + std::filesystem::read_symlink(fd.path()).string() + ' ';
        if (S_ISREG(st.st_mode)) out += "file " + name;
        if (S_ISSOCK(st.st_mode)) out += "socket " + fd.path().filename().string() + ' ';
      }
    }
    return out;
  });
  EXPECT_EQ(seen, "socket 3 ") << "of one worker";
}

// A host that waits for any child takes the workers' exit statuses before kiln can read them.
TEST_F(OddHosts, AHostThatWaitsForAnybodyGetsItsCompiles) {
  std::atomic<bool> stop{false};
  std::thread reaper([&] {
    while (!stop) {
      ::waitpid(-1, nullptr, WNOHANG);
      std::this_thread::sleep_for(100us);
    }
  });
  {
    WorkerPool pool({.executable = kWorker, .jobs = 2});
    for (int i = 0; i < 5; ++i) {
      auto endless = std::async(std::launch::async, [&] {
        return pool.run(request(toolkit_, kEndless), {.compile_limit = 500ms});
      });
      EXPECT_EQ(pool.run(request(toolkit_), {}).response.status, Status::ok);
      EXPECT_EQ(endless.get().fate, Fate::timed_out);
    }
  }
  EXPECT_TRUE(soon(50, [] { return children().empty(); }));
  stop = true;
  reaper.join();
}

TEST_F(OddHosts, AHostForksInEveryStateOfItsPool) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "under the thread sanitizer a child of a process with threads cannot start one";
#endif
  WorkerPool pool({.executable = kWorker, .jobs = 2, .idle = 30ms});
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int t = 0; t < 3; ++t) {
    busy.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        if (t == 0 && i % 5 == 0)
          EXPECT_EQ(pool.run(request(toolkit_, kEndless), {.compile_limit = 100ms}).fate, Fate::timed_out);
        else
          EXPECT_EQ(pool.run(request(toolkit_), {.compile_limit = 60s}).response.status, Status::ok);
        if (i % 7 == 0) std::this_thread::sleep_for(50ms);  // idle workers exit meanwhile
      }
    });
  }
  std::vector<int> statuses;
  const auto add = [&](const std::vector<int>& some) {
    statuses.insert(statuses.end(), some.begin(), some.end());
  };
  fault::Children side_by_side;
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 13));
    const auto uses_the_pool = [&, i] {
      ::alarm(60);
      return i % 3 != 0 || pool.run(request(toolkit_), {.compile_limit = 50s}).response.status == Status::ok
                 ? 0
                 : 3;
    };
    if (i % 2 == 0) {
      side_by_side.start(uses_the_pool);
      continue;
    }
    fault::Children one;
    one.start(uses_the_pool);
    add(one.wait());
  }
  add(side_by_side.wait());
  stop = true;
  for (std::thread& t : busy) t.join();
  EXPECT_EQ(statuses, std::vector<int>(60, 0)) << "142: it hung until its alarm";
}

TEST_F(OddHosts, ServicesComeAndGoWhileCompilesRun) {
  const auto one_life = [&](int round) {
    Options o = options();
    o.cache_dir = tree_.at("cache" + std::to_string(round));
    {
      Service service(o);
      std::vector<std::thread> callers;
      for (int i = 0; i < 8; ++i) {
        callers.emplace_back([&, i] {
          ask(service, i + 1, std::chrono::milliseconds(round * 3), i % 2 ? Urgency::ahead : Urgency::caller);
        });
      }
      for (std::thread& caller : callers) caller.join();
    }
    forget(o.cache_dir);
  };
  one_life(100);  // warms up: descriptors that a process opens once and keeps are no leak
  const auto before = open_descriptors();
  for (int round = 0; round < 25; ++round) one_life(round);
  EXPECT_TRUE(children().empty());
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(OddHosts, AHostExitsWithRunningCompiles) {
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    fault::Children child;
    std::fflush(nullptr);  // otherwise exit() in the child prints buffered text again
    child.start([&, i] {
      ::alarm(60);
      if (i % 2) {  // exit() destroys the service; its callers have given up, the flights go on
        static std::unique_ptr<Service> owned;
        owned = std::make_unique<Service>(options());
        std::vector<std::thread> callers;
        for (int k = 0; k < 4; ++k)
          callers.emplace_back([&, k] { ask(*owned, k + 10 * i + 1, 1ms * k, Urgency::caller); });
        for (std::thread& caller : callers) caller.join();
      } else {  // nothing destroys the service; its callers still wait
        static auto* const leaked = new Service(options());
        for (int k = 0; k < 4; ++k) {
          std::thread([k, i] {
            ask(*leaked, k + 10 * i + 1, 60s, Urgency::caller);
            ::pause();
          }).detach();
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(15 * i));
      std::exit(0);
      return 1;
    });
    EXPECT_EQ(child.wait(), std::vector<int>{0}) << "142: it hung until its alarm";
  }
}

}  // namespace
}  // namespace kiln::testing
