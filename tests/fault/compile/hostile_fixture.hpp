// Hostile sources and workers, each through a service with real workers. The host lives, the deadline holds,
// the error says why, the next compile works, and nothing is left behind.
#pragma once

#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/time_limit.hpp"
#include "tests/support/sanitized.hpp"

namespace kiln::testing {

using runtime::Service;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

using kiln::testing::kSanitized;

class HostileTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    if (IsSkipped()) return;
    std::filesystem::create_directories(tree_.at("worker"));
    {  // warms up: descriptors that a process opens once and keeps are no leak
      Service service(with_deadline(60));
      expect_works(service);
    }
    settle();
    descriptors_ = descriptors();
    reset_peak();
    before_kib_ = status_kib("VmRSS:");
  }
  void TearDown() override {
    if (IsSkipped()) return;
    settle();
    EXPECT_EQ(descriptors(), descriptors_) << "a descriptor leaked";
    EXPECT_TRUE(children().empty()) << "a worker or its zombie is left";
    EXPECT_LT(status_kib("VmHWM:") - before_kib_, (kMaySpendMiB << 10) + allowed_kib_)
        << "the host's memory ballooned";
  }

  /// Waits for the threads of a destroyed service, which may still be ending.
  static void settle() {
    base::poll_until(base::Deadline::after(std::chrono::seconds(10)), [] { return threads() == 1; });
  }
  static std::ptrdiff_t threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  }

  static constexpr long kMaySpendMiB = kSanitized ? 1024 : 64;
  /// Allows more memory, for a test whose result is large.
  void allow_mib(long mib) { allowed_kib_ = mib << 10; }

  Options with_deadline(double seconds) const {
    Options o = options();
    o.compile_deadline_s = seconds;
    o.jobs = 1;
    return o;
  }
  /// Compiles `name`, which must fail with `code` within `seconds` + 1 s. `slack` adds time for a busy
  /// machine. The error must contain `words`. Returns its message.
  std::string expect_fails(Service& service, const std::string& name, Errc code, double seconds,
                           const std::vector<std::string>& words, milliseconds slack = milliseconds(0)) {
    const auto start = steady_clock::now();
    std::string message;
    try {
      compile(service, name, {Dtype::f32, 7});
      ADD_FAILURE() << name << " was compiled";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      const bool compiling =
          code == Errc::compile_failed || code == Errc::compile_timeout || code == Errc::compile_crashed;
      EXPECT_EQ(dynamic_cast<const CompileError*>(&error) != nullptr, compiling) << error.what();
      message = error.what();
    }
    const auto took = std::chrono::duration<double>(steady_clock::now() - start).count();
    EXPECT_LT(took, at_most(seconds + 1 + std::chrono::duration<double>(slack).count()));
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), std::string::npos)
          << "no '" << word << "' in: " << message.substr(0, 2000);
    return message;
  }
  void add(Service& service, const std::string& name, const std::string& source,
           const std::string& more = "") const {
    service.add({small_manifest(name, more), source, ""});
  }
  /// Compiles a source that differs from every hostile one; each call compiles another kernel of it.
  void expect_works(Service& service) {
    try {
      EXPECT_EQ(compile(service, "scale", {Dtype::f32, ++kernels_}).outcome, Outcome::compiled);
    } catch (const Error& error) {
      ADD_FAILURE() << "the next compile: " << error.what();
    }
  }

  static std::ptrdiff_t descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  }
  /// Child processes of any thread of this process, zombies included.
  static std::vector<pid_t> children() {
    std::vector<pid_t> out;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(thread.path() / "children");
      for (pid_t pid = 0; file >> pid;) out.push_back(pid);
    }
    return out;
  }
  static void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }
  static long status_kib(const std::string& field) {
    std::ifstream file("/proc/self/status");
    for (std::string word; file >> word;) {
      long value = 0;
      if (word == field && file >> value) return value;
    }
    return 0;
  }

  int kernels_ = 100;

 private:
  std::ptrdiff_t descriptors_ = 0;
  long before_kib_ = 0, allowed_kib_ = 0;
};

}  // namespace kiln::testing
