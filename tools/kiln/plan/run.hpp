// Runs a plan with several threads through the lookup path.
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
  int lane = 0;         ///< index of the thread in the run
  double start_ms = 0;  ///< since the run's start
  double compile_ms = 0, total_ms = 0;
  double frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0;  ///< parts of compile_ms; 0 when not compiled here
  std::string unpublishable;
  std::vector<compile::BrokenLimit> broken;   ///< broken limits, by the requested strictness
  std::string error_code, error, diagnostic;  ///< of a failure: code, whole message, first diagnostic
};

struct PrewarmResult {
  std::vector<TaskResult> tasks;  ///< one for each task of the plan, in its order
  bool keep_going = false, interrupted = false;
  std::size_t uncached = 0;  ///< compiled, but not in the store afterwards
  int jobs = 1;
  double started_ms = 0;  ///< unix time, by the wall clock
  double wall_ms = 0;
  std::optional<double> cpu_ms;  ///< used by this process and its workers

  std::size_t count(TaskResult::State state) const;
  std::size_t count(Outcome outcome) const;
  std::size_t failed() const { return count(TaskResult::State::failed); }
  std::size_t succeeded() const { return count(TaskResult::State::done); }
  /// Indices of the tasks that took longest to compile, longest first.
  std::vector<std::size_t> slowest(std::size_t most) const;
};

struct PrewarmOptions {
  int jobs = 1;
  bool keep_going = false;
  bool lines_on_stdout = true;
  /// With `strict`, a kernel that breaks its limits counts as failed, but is cached.
  compile::Strictness strictness = compile::Strictness::declared;
};

/// Runs the plan and shows progress. New work stops after the first failure, unless keep_going, and after the
/// first Ctrl-C; a second Ctrl-C exits at once. Returns when all started work is done and published.
PrewarmResult run_prewarm(runtime::Core& core, const PrewarmPlan& plan, const PrewarmOptions& options);

/// The arch of the image that the cache has for a task. Where the task's arch is that of a GPU, an image of another arch
/// that the GPU runs serves, too; the order is that of a get. Nothing when no image serves. Compiles nothing.
std::optional<base::Arch> serving_arch(runtime::Core& core, const PlannedTask& task);

/// serving_arch of each task. A task whose recorded tuned choice is missing is not served.
std::vector<std::optional<base::Arch>> check_coverage(runtime::Core& core, const PrewarmPlan& plan);

}  // namespace kiln::cli
