// Walking a plan with several threads over the one path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prewarm_plan.hpp"
#include "runtime/pipeline.hpp"

namespace kiln::cli {

struct TaskResult {
  enum class State { not_started, done, failed } state = State::not_started;
  Outcome outcome = Outcome::memory;
  Key key;
  std::uint64_t cubin_bytes = 0;
  double compile_ms = 0, total_ms = 0;
  std::string unpublishable;
  std::string error_code, error, diagnostic;  ///< of a failure: code, whole message, its first diagnostic
};

struct PrewarmResult {
  std::vector<TaskResult> tasks;  ///< as in the plan
  bool keep_going = false, interrupted = false;
  std::size_t uncached = 0;  ///< compiled, and not in the store afterwards
  int jobs = 1;
  double wall_ms = 0;

  std::size_t count(TaskResult::State state) const;
  std::size_t count(Outcome outcome) const;
  std::size_t failed() const { return count(TaskResult::State::failed); }
  std::size_t succeeded() const { return count(TaskResult::State::done); }
};

struct PrewarmOptions {
  int jobs = 1;
  bool keep_going = false;
  bool lines_on_stdout = true;
};

/// Shows progress. The first failure stops new work unless keep_going; so does Ctrl-C. Returns when
/// everything started is done and published.
PrewarmResult run_prewarm(runtime::Pipeline& pipeline, const PrewarmPlan& plan,
                          const PrewarmOptions& options);

/// For each task whether the cache has it. Compiles nothing.
std::vector<bool> check_coverage(runtime::Pipeline& pipeline, const PrewarmPlan& plan);

}  // namespace kiln::cli
