// Walking a plan with several threads over the one path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compile/key/limits.hpp"
#include "runtime/path/core.hpp"
#include "tools/kiln/plan/plan.hpp"

namespace kiln::cli {

struct TaskResult {
  enum class State { not_started, done, failed } state = State::not_started;
  Outcome outcome = Outcome::memory;
  Key key;
  std::uint64_t cubin_bytes = 0;
  int lane = 0;         ///< which thread of the run
  double start_ms = 0;  ///< since the run began
  double compile_ms = 0, total_ms = 0;
  double frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0;  ///< of compile_ms; 0 when it was not compiled here
  std::string unpublishable;
  std::vector<compile::BrokenLimit> broken;   ///< limits, as strict as was asked for
  std::string error_code, error, diagnostic;  ///< of a failure: code, whole message, its first diagnostic
};

struct PrewarmResult {
  std::vector<TaskResult> tasks;  ///< as in the plan
  bool keep_going = false, interrupted = false;
  std::size_t uncached = 0;  ///< compiled, and not in the store afterwards
  int jobs = 1;
  double started_ms = 0;  ///< since 1970, by the clock on the wall
  double wall_ms = 0;
  std::optional<double> cpu_ms;  ///< of this process and its workers

  std::size_t count(TaskResult::State state) const;
  std::size_t count(Outcome outcome) const;
  std::size_t failed() const { return count(TaskResult::State::failed); }
  std::size_t succeeded() const { return count(TaskResult::State::done); }
  /// Indices of what took longest to compile, longest first.
  std::vector<std::size_t> slowest(std::size_t most) const;
};

struct PrewarmOptions {
  int jobs = 1;
  bool keep_going = false;
  bool lines_on_stdout = true;
  /// `strict`: what breaks its limits counts as failed, cached as it is.
  compile::Strictness strictness = compile::Strictness::declared;
};

/// Shows progress. The first failure stops new work unless keep_going; so does the first Ctrl-C, and the
/// second leaves at once. Returns when everything started is done and published.
PrewarmResult run_prewarm(runtime::Core& core, const PrewarmPlan& plan, const PrewarmOptions& options);

/// For each task whether the cache has it. Compiles nothing.
std::vector<bool> check_coverage(runtime::Core& core, const PrewarmPlan& plan);

}  // namespace kiln::cli
