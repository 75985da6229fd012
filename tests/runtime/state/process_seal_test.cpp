// The seal of a process. It is final, so each test runs in a new process.
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "runtime/core_fixture.hpp"
#include "runtime/library_copy.hpp"
#include "runtime/state/hidden_copy.h"
#include "support/child.hpp"
#include "support/places.hpp"
#include "support/sanitized.hpp"

namespace kiln::testing {
namespace {

constexpr auto kNotReady = static_cast<kiln_status>(Errc::not_ready);

class ProcessSeal : public Core {
 protected:
  void SetUp() override {}  // happens in the child: the CUDA driver does not work after a fork
  void TearDown() override {}
  template <class Body>
  void alone(Body&& body) {
    EXPECT_EQ(in_child([&] {
                Core::SetUp();
                if (IsSkipped()) return 0;
                if (!HasFatalFailure()) body();
                return HasFailure() ? 1 : 0;
              }),
              0);
  }
  void prewarm(const std::vector<int>& wanted) const {
    Service service(options());
    small(service, "s");
    for (const int n : wanted) service.open("s", Device::none()).compile(n);
  }
  template <class Body>
  static void refused(Body&& body) {
    expect_error(Errc::not_ready, {"sealed", "s N="}, body);
  }
};

TEST_F(ProcessSeal, AServiceWhoseModeNobodySetIsSealed) {
  alone([&] {
    prewarm({1, 2});
    Service service(options());
    small(service, "s");
    const KernelTemplate t = service.open("s");
    const Kernel ready = t.get(1);
    process_seal();
    EXPECT_EQ(driver_calls([&] {
                EXPECT_EQ(t.get(1).handle(), ready.handle());
                refused([&] { t.get(2); });
                refused([&] { t.get(3); });
                refused([&] { t.get_async(3); });
                refused([&] { t.prefetch(3); });
                refused([&] { t.compile(3); });
              }),
              0u);
    EXPECT_EQ(service.stats().compiles, 0u);
    EXPECT_EQ(service.stats().sealed_misses, 5u);
    EXPECT_EQ(service.prepare(service.missing()).wait().compiled, 1u) << "prepare is the way past it";
    EXPECT_TRUE(t.get(3));
    process_seal();
  });
}

TEST_F(ProcessSeal, ServicesMadeLaterAreSealedFromTheStart) {
  alone([&] {
    prewarm({1});
    process_seal();
    Service service(options());
    small(service, "s");
    const KernelTemplate t = service.open("s");
    refused([&] { t.get(1); });
    EXPECT_EQ(service.stats().disk_hits, 0u) << "memory only";
    EXPECT_EQ(service.prepare("[[prewarm]]\ntemplate = \"s\"\nN = 1\n").wait().disk, 1u);
    EXPECT_TRUE(t.get(1));
  });
}

TEST_F(ProcessSeal, ServicesThatWereToldAModeKeepIt) {
  alone([&] {
    Told told;
    Options jit = options(), warn = options(), sealed = options();
    jit.mode = Mode::jit, warn.mode = Mode::warn, sealed.mode = Mode::sealed;
    warn.on_event = told.listener();
    warn.cache_dir = tree_.at("another");
    Service before(jit);
    small(before, "s");
    process_seal();
    EXPECT_TRUE(before.open("s").get(1));
    Service later(jit), warned(warn), closed(sealed);
    for (Service* service : {&later, &warned, &closed}) small(*service, "s");
    EXPECT_TRUE(later.open("s").get(2));
    EXPECT_TRUE(warned.open("s").get(1));
    EXPECT_EQ(told.count(Event::Kind::miss_after_seal), 1u) << "the process's seal is a seal";
    refused([&] { closed.open("s").get(1); });
  });
}

TEST_F(ProcessSeal, AModeFromTheEnvironmentOrAFileIsSet) {
  alone([&] {
    process_seal();
    Options o = options();
    o.ignore_environment = false;
    ::setenv("XDG_CONFIG_HOME", tree_.at("config").c_str(), 1);
    ::setenv("KILN_MODE", "jit", 1);
    {
      Service service(o);
      small(service, "s");
      EXPECT_TRUE(service.open("s").get(1));
    }
    ::unsetenv("KILN_MODE");
    {
      Service service(o);
      small(service, "s");
      refused([&] { service.open("s").get(2); });
    }
    tree_.write("config/kiln/config.toml", "mode = \"jit\"\n");
    Service service(o);
    small(service, "s");
    EXPECT_TRUE(service.open("s").get(2));
  });
}

TEST_F(ProcessSeal, ReachesACopyThatIsThere) {
  alone([&] {
    const Copy copy(tree_.at("a"));
    kiln_template* const t = copy.open(options());
    EXPECT_EQ(copy.compile(t, 1), KILN_OK);
    process_seal();
    EXPECT_EQ(copy.compile(t, 2), kNotReady);
  });
}

TEST_F(ProcessSeal, ReachesACopyThatHasNoServiceYet) {
  alone([&] {
    const Copy copy(tree_.at("a"));
    process_seal();
    EXPECT_EQ(copy.compile(copy.open(options()), 1), kNotReady);
  });
}

TEST_F(ProcessSeal, ReachesUsFromACopy) {
  alone([&] {
    Service service(options());
    small(service, "s");
    const KernelTemplate t = service.open("s");
    t.get(1);
    const Copy copy(tree_.at("a")), another(tree_.at("b"));
    copy.seal_process();
    refused([&] { t.get(2); });
    EXPECT_EQ(another.compile(another.open(options()), 2), kNotReady) << "and every other copy";
  });
}

TEST_F(ProcessSeal, ReachesACopyThatIsLoadedLater) {
  alone([&] {
    process_seal();
    const Copy copy(tree_.at("a"));
    EXPECT_EQ(copy.compile(copy.open(options()), 1), kNotReady);
  });
}

TEST_F(ProcessSeal, ReachesAStaticCopyWhoseSymbolsAreHidden) {
  alone([&] {
    const Options o = options();
    const std::string cache = tree_.at("hidden");
    EXPECT_EQ(kiln_hidden_copy_compile(cache.c_str(), o.cuda_home.c_str(), kManifest, kSource, 1), KILN_OK);
    process_seal();
    EXPECT_EQ(kiln_hidden_copy_compile(cache.c_str(), o.cuda_home.c_str(), kManifest, kSource, 2), kNotReady);
  });
}

TEST_F(ProcessSeal, ReachesUsFromAStaticCopyWhoseSymbolsAreHidden) {
  alone([&] {
    Service service(options());
    small(service, "s");
    const KernelTemplate t = service.open("s");
    kiln_hidden_copy_seal_process();
    refused([&] { t.get(1); });
  });
}

TEST_F(ProcessSeal, AChildIsSealedAndASealOfItsOwnStaysItsOwn) {
  alone([&] {
    const auto compiles = [&](int n) {
      return in_child([&] {
        Service service(options());
        small(service, "s");
        try {
          service.open("s", Device::none()).compile(n);
          return 0;
        } catch (const Error& error) {
          return error.code() == Errc::not_ready ? 2 : 1;
        }
      });
    };
    EXPECT_EQ(in_child([] {
                process_seal();
                return 0;
              }),
              0);
    EXPECT_EQ(compiles(1), 0) << "a child's seal is not its parent's";
    process_seal();
    EXPECT_EQ(compiles(2), 2);
    EXPECT_EQ(compiles(1), 2) << "not from disk either";
  });
}

TEST_F(ProcessSeal, ASealedProcessStartsNoCompiler) {
  alone([&] {
    Options o = options();
    o.worker = tree_.write("worker.sh", "#!/bin/sh\n: > " + tree_.at("started") + "\nexec " +
                                            std::string(places::kBuildDirectory) + "/kiln-worker \"$@\"\n");
    ::chmod(o.worker.c_str(), 0755);
    const auto started = [&] { return std::filesystem::exists(tree_.at("started")); };
    process_seal();
    {
      Service service(o);
      small(service, "s");
      const KernelTemplate t = service.open("s");
      refused([&] { t.get(1); });
    }
    EXPECT_FALSE(started());
    o.mode = Mode::jit;
    Service service(o);
    small(service, "s");
    service.open("s");
    EXPECT_TRUE(comes_true(started)) << "where a cold cache does";
  });
}

/// The number of 100 steps that a thread completes under seccomp, which kills it at its first system call.
template <class Body>
int steps_without_system_calls(Body&& body) {
  std::atomic<int> steps{0};
  std::thread([&] {
    body(-1);  // the first call allocates memory; later calls reuse it
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) {
      steps = -1;
      return;
    }
    for (int i = 0; i < 100; ++i, ++steps) body(i);
    ::syscall(SYS_exit, 0);
  }).join();
  return steps;
}

TEST_F(ProcessSeal, AMissMakesNoSystemCallAndNoDriverCall) {
  KILN_SKIP_SANITIZED("system calls");
  alone([&] {
    Service service(options());
    small(service, "s");
    const KernelTemplate t = service.open("s");
    t.get(1);
    process_seal();
    int refusals = 0;
    const auto ask = [&](int i) {
      for (int n = 2; n < (i < 0 ? 40 : 6); ++n) {
        try {
          t.get(n);
        } catch (const Error& error) {
          refusals += error.code() == Errc::not_ready;
        }
      }
    };
    const int tried = steps_without_system_calls([&](int i) {
      if (i == 7) ::access("/", F_OK);
    });
    if (tried == -1) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(tried, 7) << "this test could not fail";
    EXPECT_EQ(driver_calls([&] { EXPECT_EQ(steps_without_system_calls(ask), 100); }), 0u);
    EXPECT_EQ(refusals, 38 + 400);
  });
}

}  // namespace
}  // namespace kiln::testing
