#include "prewarm_report.hpp"

#include <algorithm>

#include "outcome.hpp"
#include "output.hpp"

namespace kiln::cli {
namespace {

using State = TaskResult::State;

Json task_json(const PlannedTask& task) {
  return {{"template", task.specialization().template_name},
          {"params", json_of(task.specialization().parameters)},
          {"arch", task.resolved.arch.name()}};
}

Json task_json(const PlannedTask& task, const TaskResult& result) {
  Json out = task_json(task);
  out["outcome"] = result.state == State::done     ? std::string(name_of(result.outcome))
                   : result.state == State::failed ? "failed"
                                                   : "not_started";
  if (result.state == State::done) {
    out["key"] = result.key.hex();
    out["cubin_bytes"] = result.cubin_bytes;
    out["compile_ms"] = result.compile_ms;
    out["total_ms"] = result.total_ms;
    out["unpublishable"] = result.unpublishable.empty() ? Json(nullptr) : Json(result.unpublishable);
  } else if (result.state == State::failed) {
    out["error"] = {{"code", result.error_code}, {"message", result.error}};
  }
  return out;
}

void print_skipped(const PrewarmPlan& plan) {
  for (const std::string& skipped : plan.skipped) print("skipped  " + skipped + '\n');
}

/// On stderr, whatever stdout looks like.
void report_failures(const PrewarmResult& result) {
  std::fflush(stdout);
  if (result.failed()) {
    std::fprintf(
        stderr, "kiln: error: %s failed%s\n", counted(result.failed(), "specialisation").c_str(),
        !result.keep_going && result.count(State::not_started) ? "; --keep-going compiles the rest" : "");
  }
  if (result.uncached) {
    std::fprintf(
        stderr, "kiln: error: %s compiled and could not be cached; see the warnings\n",
        (counted(result.uncached, "specialisation") + (result.uncached == 1 ? " was" : " were")).c_str());
  }
}

/// The first failure, as every command reports its own.
Json first_error(const PrewarmResult& result) {
  for (const TaskResult& t : result.tasks) {
    if (t.state == State::failed) return {{"code", t.error_code}, {"message", t.error}};
  }
  return nullptr;
}

}  // namespace

void report_prewarm(const Context& context, const PrewarmPlan& plan, const PrewarmResult& result,
                    const std::string& directory) {
  std::uint64_t bytes = 0;
  for (const TaskResult& t : result.tasks) bytes += t.cubin_bytes;
  const std::size_t compiled = result.count(Outcome::compiled), waited = result.count(Outcome::waited);
  const std::size_t ready = result.succeeded() - compiled - waited, rest = result.count(State::not_started);
  if (context.json) {
    Json out{{"schema", context.schema()}, {"directory", directory},
             {"total", plan.tasks.size()}, {"from_disk", ready},
             {"compiled", compiled},       {"waited", waited},
             {"failed", result.failed()},  {"not_started", rest},
             {"skipped", plan.skipped},    {"uncached", result.uncached},
             {"cubin_bytes", bytes},       {"jobs", result.jobs},
             {"wall_ms", result.wall_ms},  {"interrupted", result.interrupted},
             {"entries", Json::array()}};
    for (std::size_t i = 0; i < plan.tasks.size(); ++i)
      out["entries"].push_back(task_json(plan.tasks[i], result.tasks[i]));
    if (result.failed()) out["error"] = first_error(result);
    print_json(out);
    return report_failures(result);
  }
  const Terminal terminal = standard_output();
  print_skipped(plan);
  std::string line = std::to_string(result.succeeded()) + " of " +
                     counted(plan.tasks.size(), "specialisation") + ": " + std::to_string(ready) +
                     " from disk, " + std::to_string(compiled) + " compiled";
  if (waited) line += ", " + std::to_string(waited) + " by another process";
  if (result.failed())
    line += ", " + paint(std::to_string(result.failed()) + " failed", Style::red, terminal);
  if (rest) line += ", " + std::to_string(rest) + " not started";
  print(line + "; " + human_bytes(bytes) + " in " + human_ms(result.wall_ms) + '\n');
  // With a bar on this terminal, the failures stand right above.
  const bool seen = terminal.interactive && standard_error().interactive;
  for (std::size_t i = 0; i < plan.tasks.size() && !seen; ++i) {
    if (result.tasks[i].state == State::failed) {
      print(paint("failed", Style::red, terminal) + "  " + plan.tasks[i].label + ": " +
            result.tasks[i].diagnostic + '\n');
    }
  }
  report_failures(result);
}

int report_coverage(const Context& context, const PrewarmPlan& plan, const std::vector<bool>& covered) {
  const auto there = static_cast<std::size_t>(std::count(covered.begin(), covered.end(), true));
  const std::size_t missing = covered.size() - there;
  if (context.json) {
    Json out{{"schema", context.schema()}, {"check", true},      {"total", covered.size()},
             {"covered", there},           {"missing", missing}, {"skipped", plan.skipped},
             {"entries", Json::array()}};
    for (std::size_t i = 0; i < covered.size(); ++i) {
      Json entry = task_json(plan.tasks[i]);
      entry["covered"] = static_cast<bool>(covered[i]);
      out["entries"].push_back(std::move(entry));
    }
    print_json(out);
  } else {
    for (std::size_t i = 0; i < covered.size(); ++i) {
      if (!covered[i]) print("missing  " + plan.tasks[i].label + '\n');
    }
    print_skipped(plan);
    print(std::to_string(there) + " of " + counted(covered.size(), "specialisation") + " covered" +
          (missing ? "; 'kiln prewarm' compiles the rest" : "") + '\n');
  }
  return missing ? kPartly : kDone;
}

}  // namespace kiln::cli
