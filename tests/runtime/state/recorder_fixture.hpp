// One record in a temporary directory, written by this process and by its children.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/log.hpp"
#include "instantiate/plan.hpp"
#include "runtime/state/recorder.hpp"
#include "support/tree.hpp"

namespace kiln::testing {

using runtime::Recorder;

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() : catalog_({tree_.at("t")}), file_(tree_.at("record")) {
    tree_.write("t/scale.toml", small_manifest("scale"));
    tree_.write("t/scale.cu", small_source());
    origin_ = catalog_.open("scale");
    listen();
  }
  ~RecorderTest() override { base::set_log_sink(nullptr); }

  /// Collects this process's log lines. A child calls it again for its own log.
  void listen() {
    base::set_log_sink([this](base::Level, std::string_view line) {
      const std::lock_guard lock(lines_mutex_);
      lines_.emplace_back(line);
    });
  }
  static source::Resolved resolved(const source::Template& origin, std::int64_t n) {
    return source::resolve(origin.manifest, std::vector<Value>{Value(Dtype::f32), Value(n)},
                           base::Arch::parse("90"));
  }
  void record(Recorder& recorder, std::int64_t n) const { recorder.record(*origin_, resolved(*origin_, n)); }
  std::string text() const {
    const auto content = base::read_file(file_);
    return content ? content->bytes : "";
  }
  /// The N of each row, in the file's order.
  std::vector<std::int64_t> rows(source::PlanNotes* notes = nullptr) const {
    std::vector<std::int64_t> out;
    for (const auto& planned : source::parse_plan(text(), file_, notes)) out.push_back(n_of(planned));
    return out;
  }
  static std::int64_t n_of(const source::PlannedSpecialization& planned) {
    for (const Parameter& p : planned.values)
      if (p.name == "N") return std::stoll(p.value);
    return -1;
  }
  /// Runs `body` in a child process and returns its exit status; 128 + signal when one ended it.
  template <class Body>
  int in_child(Body&& body) {
    const pid_t pid = start_child(std::forward<Body>(body));
    return finish(pid);
  }
  template <class Body>
  pid_t start_child(Body&& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(60);
      listen();
      body();
      ::_exit(0);
    }
    return pid;
  }
  static int finish(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::size_t warnings() const {
    const std::lock_guard lock(lines_mutex_);
    return lines_.size();
  }

  Tree tree_;
  source::Catalog catalog_;
  const std::string file_;
  std::shared_ptr<const source::Template> origin_;
  mutable std::mutex lines_mutex_;
  std::vector<std::string> lines_;
};

using Rows = std::vector<std::int64_t>;

}  // namespace kiln::testing
