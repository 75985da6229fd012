#include "tools/kiln/prewarm/trace.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "kiln/error.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

constexpr int kProcess = 1;  // all lanes belong to one prewarm

/// Converts milliseconds to the format's microseconds, rounded to a nanosecond.
double us(double ms) { return std::round(ms * 1e6) / 1e3; }

Json event(const std::string& name, const char* category, int lane, double start_ms, double length_ms) {
  return {{"name", name},    {"cat", category},    {"ph", "X"},           {"pid", kProcess},
          {"tid", lane + 1}, {"ts", us(start_ms)}, {"dur", us(length_ms)}};
}

Json name_event(const char* what, int thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", {{"name", name}}}};
}

void add_task(Json& events, const NotedTask& task) {
  Json whole = event(task.template_name + ' ' + task.params + ' ' + task.arch, "specialisation", task.lane,
                     task.start_ms, task.total_ms);
  whole["args"] = {
      {"template", task.template_name},  {"params", task.params},   {"arch", task.arch},
      {"outcome", task.outcome},         {"key", task.key},         {"compile_ms", task.compile_ms},
      {"frontend_ms", task.frontend_ms}, {"nvvm_ms", task.nvvm_ms}, {"ptxas_ms", task.ptxas_ms}};
  events.push_back(std::move(whole));
  double at = std::max(task.start_ms, task.end_ms() - task.compile_ms);
  const std::pair<const char*, double> phases[] = {
      {"front end", task.frontend_ms}, {"NVVM", task.nvvm_ms}, {"ptxas", task.ptxas_ms}};
  for (const auto& [name, ms] : phases) {
    const double length = std::min(ms, task.end_ms() - at);  // clocks differ by the time of a message
    if (length <= 0) continue;
    events.push_back(event(name, "phase", task.lane, at, length));
    at += length;
  }
}

}  // namespace

void check_trace_file(const std::string& path) {
  if (path == "-")
    throw Error(Errc::invalid_argument, "--trace -: stdout is for the results; name a file, or /dev/stderr");
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0 || S_ISREG(st.st_mode)) write_output(path, trace_text({}));
}

std::string trace_text(const NotedRun& run) {
  Json events = Json::array();
  events.push_back(name_event("process_name", 0, "kiln prewarm"));
  for (int lane = 0; lane < run.jobs; ++lane)
    events.push_back(name_event("thread_name", lane + 1, "worker lane " + std::to_string(lane + 1)));
  for (const NotedTask& task : run.tasks) add_task(events, task);
  const Json out{{"displayTimeUnit", "ms"},
                 {"otherData",
                  {{"kiln", run.version},
                   {"started_ms", std::round(run.started_ms)},
                   {"wall_ms", run.wall_ms},
                   {"jobs", run.jobs}}},
                 {"traceEvents", std::move(events)}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace kiln::cli
