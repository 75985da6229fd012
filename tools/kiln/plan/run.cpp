#include "tools/kiln/plan/run.hpp"

#include <algorithm>
#include <atomic>
#include <random>

#include "instantiate/other_archs.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/limits_report.hpp"
#include "tools/kiln/cli/outcome.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/plan/cpu_time.hpp"
#include "tools/kiln/plan/threads.hpp"

namespace kiln::cli {
namespace {

using State = TaskResult::State;

double since(base::Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
}

void run_task(runtime::Core& core, const PlannedTask& task, compile::Strictness strictness, TaskResult& out) {
  const auto start = base::Clock::now();
  runtime::ObtainOptions options;
  options.when_full = runtime::WhenFull::wait;  // the records are the purpose of the run
  options.urgency = compile::Urgency::ahead;    // an engine that waits for its kernel goes first
  try {
    const runtime::Obtained obtained =
        core.path().obtain(source::instantiate(task.origin, task.resolved), options);
    out.state = State::done;
    out.outcome = obtained.outcome;
    out.key = obtained.image->key;
    out.cubin_bytes = obtained.image->bytes.size();
    if (obtained.outcome == Outcome::compiled) {
      const compile::Facts& compiled = obtained.image->facts;
      out.compile_ms = compiled.compile_ms;
      out.frontend_ms = compiled.frontend_ms, out.nvvm_ms = compiled.nvvm_ms;
      out.ptxas_ms = compiled.ptxas_ms;
    }
    out.unpublishable = obtained.unpublishable;
    const compile::Facts& facts = obtained.image->facts;
    out.broken = compile::broken_limits(task.origin->manifest.limits, facts, strictness);
    if (strictness == compile::Strictness::strict && !out.broken.empty()) {
      out.state = State::failed;
      out.error_code = kLimitsBroken;
      out.error = compile::limits_sentence(facts, out.broken);
      out.diagnostic = out.broken.front().sentence;
    }
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    out.state = State::failed;
    out.error_code = name_of(known ? known->code() : Errc::internal);
    out.error = error.what();
    out.diagnostic = first_diagnostic(error);
  }
  out.total_ms = since(start);
}

std::string line_of(const PlannedTask& task, const TaskResult& result, const Terminal& terminal) {
  if (result.state == State::failed) {
    return paint("failed  ", Style::red, terminal) + ' ' + task.label + ": " + result.diagnostic;
  }
  const std::string outcome(name_of(result.outcome));
  return outcome + std::string(8 - std::min<std::size_t>(8, outcome.size()), ' ') + ' ' + task.label + "  " +
         human_ms(result.total_ms);
}

}  // namespace

std::size_t PrewarmResult::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(tasks.begin(), tasks.end(), [&](const TaskResult& t) { return t.state == state; }));
}

std::size_t PrewarmResult::count(Outcome outcome) const {
  return static_cast<std::size_t>(std::count_if(tasks.begin(), tasks.end(), [&](const TaskResult& t) {
    return t.state == State::done && t.outcome == outcome;
  }));
}

std::vector<std::size_t> PrewarmResult::slowest(std::size_t most) const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].state == State::done && tasks[i].outcome == Outcome::compiled) out.push_back(i);
  }
  std::stable_sort(out.begin(), out.end(), [this](std::size_t a, std::size_t b) {
    return tasks[a].compile_ms > tasks[b].compile_ms;
  });
  if (out.size() > most) out.resize(most);
  return out;
}

PrewarmResult run_prewarm(runtime::Core& core, const PrewarmPlan& plan, const PrewarmOptions& options) {
  PrewarmResult result;
  result.tasks.resize(plan.tasks.size());
  result.keep_going = options.keep_going;
  result.jobs =
      static_cast<int>(std::clamp<std::size_t>(plan.tasks.size(), 1, static_cast<std::size_t>(options.jobs)));

  const PoliteInterrupt interrupt;
  const auto start = base::Clock::now();
  result.started_ms =
      std::chrono::duration<double, std::milli>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::optional<double> cpu_before = cpu_time_ms();
  {
    bool said = false;
    Progress progress(plan.tasks.size(), options.lines_on_stdout, [&said](Progress& shown) {
      if (!PoliteInterrupt::requested() || pipe_closed() || said) return;
      said = true;
      shown.remark("kiln: interrupted; finishing what is running (Ctrl-C again to stop at once)");
    });
    // Nodes of one fleet begin with different rows of a plan. Otherwise all of them would wait for
    // the same rows.
    const std::size_t first =
        core.config().has_remote() && core.config().remote_writes() && !plan.tasks.empty()
            ? std::random_device{}() % plan.tasks.size()
            : 0;
    std::atomic<std::size_t> next{0};
    std::atomic<bool> stop{false};
    std::atomic<int> lanes{0};
    const auto work = [&] {
      const int lane = lanes++;
      for (;;) {
        if (stop || PoliteInterrupt::requested()) return;
        const std::size_t at = next++;
        if (at >= plan.tasks.size()) return;
        const std::size_t i = (first + at) % plan.tasks.size();
        const PlannedTask& task = plan.tasks[i];
        progress.started(task.label);
        result.tasks[i].lane = lane;
        result.tasks[i].start_ms = since(start);
        run_task(core, task, options.strictness, result.tasks[i]);
        const bool failed = result.tasks[i].state == State::failed;
        if (failed && !options.keep_going) stop = true;
        progress.finished(task.label, line_of(task, result.tasks[i], standard_error()), failed);
      }
    };
    run_in_threads(result.jobs, work, [&](int fewer, const std::string& why) {
      progress.remark("kiln: warning: " + std::to_string(fewer) + " compiles at once instead of " +
                      std::to_string(result.jobs) + ": no more threads could be started (" + why + ")");
      result.jobs = fewer;
    });
  }
  core.path().flush();
  result.uncached = puts_skipped(core.state().counters) + core.state().counters.unpublishable;
  result.interrupted = PoliteInterrupt::requested();
  result.wall_ms = since(start);
  if (const auto cpu_after = cpu_time_ms(); cpu_before && cpu_after) result.cpu_ms = *cpu_after - *cpu_before;
  return result;
}

std::optional<base::Arch> serving_arch(runtime::Core& core, const PlannedTask& task) {
  const source::Instantiation own = source::instantiate(task.origin, task.resolved);
  const base::Arch arch = task.resolved.arch;
  if (core.path().look(own)) return arch;
  if (arch != base::Arch(arch.number)) return std::nullopt;  // such an arch names an image, and no GPU
  for (const source::Instantiation& other : source::for_other_archs(own))
    if (core.path().look(other)) return other.resolved.arch;
  return std::nullopt;
}

std::vector<std::optional<base::Arch>> check_coverage(runtime::Core& core, const PrewarmPlan& plan) {
  std::vector<std::optional<base::Arch>> out;
  for (const PlannedTask& task : plan.tasks)
    out.push_back(task.choice_missing ? std::nullopt : serving_arch(core, task));
  return out;
}

}  // namespace kiln::cli
