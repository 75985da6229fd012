#include "tools/kiln/prewarm/report.hpp"
#include "tools/kiln/cli/table.hpp"
#include "tools/kiln/store/key/sentences.hpp"

#include <algorithm>
#include <cstdint>

#include "tools/kiln/cli/limits_report.hpp"
#include "tools/kiln/cli/outcome.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

using State = TaskResult::State;

constexpr std::size_t kSlowest = 10;

Json task_json(const PlannedTask& task) {
  Json out{{"template", task.specialization().template_name},
           {"params", json_of(task.specialization().parameters)},
           {"arch", task.resolved.arch.name()}};
  if (!task.tuned.empty()) out["tuned"] = json_of(task.tuned);
  return out;
}

/// Parts of compile_ms; all are 0 when it was not compiled here.
Json phases_json(const TaskResult& result) {
  return {{"frontend_ms", result.frontend_ms}, {"nvvm_ms", result.nvvm_ms}, {"ptxas_ms", result.ptxas_ms}};
}

Json task_json(const PlannedTask& task, const TaskResult& result, bool kept) {
  Json out = task_json(task);
  out["covered"] = kept;
  out["outcome"] = result.state == State::done     ? std::string(name_of(result.outcome))
                   : result.state == State::failed ? "failed"
                                                   : "not_started";
  if (result.state != State::not_started) out["limits_broken"] = limits_json(result.broken);
  if (result.state == State::done) {
    out["key"] = result.key.hex();
    out["cubin_bytes"] = result.cubin_bytes;
    out["compile_ms"] = result.compile_ms;
    out["phases"] = phases_json(result);
    out["total_ms"] = result.total_ms;
    out["unpublishable"] = result.unpublishable.empty() ? Json(nullptr) : Json(result.unpublishable);
  } else if (result.state == State::failed) {
    out["error"] = {
        {"code", result.error_code}, {"message", result.error}, {"diagnostic", result.diagnostic}};
  }
  return out;
}

Json slowest_json(const PrewarmPlan& plan, const PrewarmResult& result) {
  Json out = Json::array();
  for (const std::size_t i : result.slowest(kSlowest)) {
    Json entry = task_json(plan.tasks[i]);
    entry["compile_ms"] = result.tasks[i].compile_ms;
    entry["phases"] = phases_json(result.tasks[i]);
    out.push_back(std::move(entry));
  }
  return out;
}

void print_slowest(const PrewarmPlan& plan, const PrewarmResult& result) {
  const std::vector<std::size_t> slowest = result.slowest(kSlowest);
  if (slowest.empty()) return;
  using Fit = Table::Fit;
  Table table({{"SLOWEST", Fit::flexible},
               {"COMPILE", Fit::right},
               {"FRONT END", Fit::right},
               {"NVVM", Fit::right},
               {"PTXAS", Fit::right}});
  for (const std::size_t i : slowest) {
    const TaskResult& t = result.tasks[i];
    table.add({plan.tasks[i].label, human_ms(t.compile_ms), human_ms(t.frontend_ms), human_ms(t.nvvm_ms),
               human_ms(t.ptxas_ms)});
  }
  table.print();
}

std::string nothing_asked(const PrewarmPlan& plan) {
  return plan.skipped.empty() ? "the plan is empty: it asks for nothing\n"
                              : "nothing to do: everything that the plan asks for was skipped\n";
}

void print_skipped(const PrewarmPlan& plan) {
  for (const std::string& skipped : plan.skipped) print("skipped  " + skipped + '\n');
}

/// Reports failures on stderr, whatever the format on stdout is.
void report_failures(const PrewarmResult& result, const PlanRoom& room) {
  std::fflush(stdout);
  if (result.failed()) {
    std::fprintf(
        stderr, "kiln: error: %s failed%s\n", counted(result.failed(), "specialisation").c_str(),
        !result.keep_going && result.count(State::not_started) ? "; --keep-going compiles the rest" : "");
  }
  if (result.interrupted && result.count(State::not_started))
    std::fprintf(stderr, "kiln: interrupted; the same command makes the rest\n");
  if (result.uncached) {
    std::fprintf(
        stderr, "kiln: error: %s compiled but could not be cached; see the warnings\n",
        (counted(result.uncached, "specialisation") + (result.uncached == 1 ? " was" : " were")).c_str());
  }
  if (room.evicted) {
    std::fprintf(stderr, "kiln: error: %s evicted again before the end of this run: %s\n",
                 counted(room.evicted, "specialisation was", "specialisations were").c_str(),
                 room.sentence().c_str());
  }
}

/// The first failure, in the form of every command's error object.
Json first_error(const PrewarmResult& result) {
  for (const TaskResult& t : result.tasks) {
    if (t.state == State::failed) return {{"code", t.error_code}, {"message", t.error}};
  }
  return nullptr;
}

}  // namespace

void report_prewarm(const Context& context, const PrewarmPlan& plan, const PrewarmResult& result,
                    const PlanRoom& room, const std::string& directory, const std::optional<Pushed>& pushed) {
  std::uint64_t bytes = 0;
  for (const TaskResult& t : result.tasks) bytes += t.cubin_bytes;
  const std::size_t compiled = result.count(Outcome::compiled), waited = result.count(Outcome::waited);
  const std::size_t fetched = result.count(Outcome::remote);
  const std::size_t ready = result.succeeded() - compiled - waited - fetched,
                    rest = result.count(State::not_started);
  if (context.json) {
    Json out{{"schema", context.schema()}, {"directory", directory},      {"total", plan.tasks.size()},
             {"from_disk", ready},         {"compiled", compiled},        {"waited", waited},
             {"from_remote", fetched},     {"failed", result.failed()},   {"not_started", rest},
             {"skipped", plan.skipped},    {"uncached", result.uncached}, {"cubin_bytes", bytes},
             {"jobs", result.jobs},        {"wall_ms", result.wall_ms},   {"interrupted", result.interrupted},
             {"repeats", plan.repeats},    {"ignored", plan.ignored},     {"entries", Json::array()}};
    out["cpu_ms"] = result.cpu_ms ? Json(*result.cpu_ms) : Json(nullptr);
    if (pushed) out["remote"] = json_of(*pushed);
    out["evicted"] = room.evicted;
    if (room.evicted)
      out["room"] = {{"cap_bytes", room.cap_bytes},
                     {"evicted_bytes", room.evicted_bytes},
                     {"enough_bytes", room.enough_bytes}};
    out["slowest"] = slowest_json(plan, result);
    for (std::size_t i = 0; i < plan.tasks.size(); ++i)
      out["entries"].push_back(task_json(plan.tasks[i], result.tasks[i], room.kept[i]));
    if (result.failed()) out["error"] = first_error(result);
    print_json(out);
    return report_failures(result, room);
  }
  const Terminal terminal = standard_output();
  print_skipped(plan);
  if (plan.tasks.empty()) return print(nothing_asked(plan));
  print_slowest(plan, result);
  std::string line = std::to_string(result.succeeded()) + " of " +
                     counted(plan.tasks.size(), "specialisation") + ": " + std::to_string(ready) +
                     " from disk, " + std::to_string(compiled) + " compiled";
  if (fetched) line += ", " + std::to_string(fetched) + " from the fleet's tier";
  if (waited) line += ", " + std::to_string(waited) + " by another process";
  if (result.failed())
    line += ", " + paint(std::to_string(result.failed()) + " failed", Style::red, terminal);
  if (rest) line += ", " + std::to_string(rest) + " not started";
  if (room.evicted)
    line += ", " + paint(std::to_string(room.evicted) + " evicted again", Style::red, terminal);
  line += "; " + human_bytes(bytes) + " in " + human_ms(result.wall_ms);
  if (result.cpu_ms) line += " (CPU " + human_ms(*result.cpu_ms) + ')';
  if (plan.repeats) line += "; " + counted(plan.repeats, "repeat") + " left out";
  // When stdout and stderr are one terminal with a bar, the failures are already printed above.
  const bool seen = terminal.interactive && standard_error().interactive;
  for (std::size_t i = 0; i < plan.tasks.size() && !seen; ++i) {
    if (result.tasks[i].state == State::failed) {
      print(paint("failed", Style::red, terminal) + "  " + plan.tasks[i].label + ": " +
            result.tasks[i].diagnostic + '\n');
    }
  }
  print(line + '\n');
  if (pushed) print(text_of(*pushed) + '\n');
  report_failures(result, room);
}

int report_coverage(const Context& context, const PrewarmPlan& plan,
                    const std::vector<std::optional<base::Arch>>& serving) {
  const auto missing = static_cast<std::size_t>(std::count(serving.begin(), serving.end(), std::nullopt));
  const std::size_t there = serving.size() - missing;
  const auto by_other = [&](std::size_t i) {
    return serving[i] && *serving[i] != plan.tasks[i].resolved.arch;
  };
  if (context.json) {
    Json out{{"schema", context.schema()}, {"check", true},           {"total", serving.size()},
             {"covered", there},           {"missing", missing},      {"skipped", plan.skipped},
             {"repeats", plan.repeats},    {"ignored", plan.ignored}, {"entries", Json::array()}};
    for (std::size_t i = 0; i < serving.size(); ++i) {
      Json entry = task_json(plan.tasks[i]);
      entry["covered"] = serving[i].has_value();
      if (by_other(i)) entry["served_by"] = serving[i]->name();
      out["entries"].push_back(std::move(entry));
    }
    print_json(out);
  } else {
    std::size_t others = 0;
    for (std::size_t i = 0; i < serving.size(); ++i) {
      if (!serving[i]) print("missing  " + plan.tasks[i].label + '\n');
      if (!by_other(i)) continue;
      ++others;
      print("served   " + plan.tasks[i].label + " by the image for " + serving[i]->name() + '\n');
    }
    print_skipped(plan);
    if (serving.empty())
      print(nothing_asked(plan));
    else
      print(std::to_string(there) + " of " + counted(serving.size(), "specialisation") + " covered" +
            (others ? ", " + std::to_string(others) + " of them by an image for another arch" : "") +
            (missing ? "; 'kiln prewarm' compiles the rest" : "") + '\n');
  }
  return missing ? kPartly : kDone;
}

}  // namespace kiln::cli
