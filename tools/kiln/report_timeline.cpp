#include "report_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace kiln::cli {
namespace {

constexpr std::size_t kParts = 160;

/// The length from which a task is drawn by itself.
double apart_from(const NotedRun& run) {
  if (run.tasks.size() <= kBarsApart) return 0;
  std::vector<double> lengths;
  for (const NotedTask& task : run.tasks) lengths.push_back(task.total_ms);
  const auto nth = lengths.begin() + kBarsApart;
  std::nth_element(lengths.begin(), nth, lengths.end(), std::greater<>());
  return std::nextafter(*nth, 1e300);  // equals of that one are not drawn apart: the bound holds
}

void add_bars(TimeLine& out, const std::vector<const NotedTask*>& lane, double apart) {
  bool open = false;  // the last bar takes more
  for (const NotedTask* task : lane) {
    const bool small = task->total_ms < apart;
    // A note may change its template with every task: then templates share a bar rather than bars be many.
    if (open && out.bars.size() < kBarsMost)
      open = out.bars.back().task->template_name == task->template_name;
    if (!small || !open) out.bars.push_back({task, 0, 0, 0, 0, 0, 0});
    open = small;
    Bar& bar = out.bars.back();
    ++bar.tasks;
    bar.end_ms = std::max(bar.end_ms, task->end_ms());
    bar.compile_ms += task->compile_ms, bar.frontend_ms += task->frontend_ms;
    bar.nvvm_ms += task->nvvm_ms, bar.ptxas_ms += task->ptxas_ms;
  }
}

void add_compiling(TimeLine& out, const NotedRun& run) {
  const double part = (out.last_ms - out.first_ms) / kParts;
  if (!(part > 0)) return;
  out.compiling.resize(kParts);
  for (const NotedTask& task : run.tasks) {
    const double from = std::max(task.start_ms, task.end_ms() - task.compile_ms) - out.first_ms;
    const double to = task.end_ms() - out.first_ms;
    for (auto i = static_cast<std::size_t>(from / part); i < kParts; ++i) {
      const double begin = static_cast<double>(i) * part;
      if (begin >= to) break;
      const double overlap = std::min(to, begin + part) - std::max(from, begin);
      if (overlap > 0) out.compiling[i] += overlap / part;
    }
  }
}

}  // namespace

TimeLine time_line_of(const NotedRun& run) {
  TimeLine out;
  std::map<int, std::vector<const NotedTask*>> lanes;
  for (int lane = 0; lane < run.jobs; ++lane) lanes[lane];  // one that had nothing to do is shown, too
  out.first_ms = run.left_out && !run.tasks.empty() ? run.tasks.front().start_ms : 0;
  out.last_ms = run.wall_ms;
  for (const NotedTask& task : run.tasks) {
    lanes[task.lane].push_back(&task);
    out.first_ms = std::min(out.first_ms, task.start_ms);
    out.last_ms = std::max(out.last_ms, task.end_ms());
  }
  const double apart = apart_from(run);
  for (auto& [number, tasks] : lanes) {
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const NotedTask* a, const NotedTask* b) { return a->start_ms < b->start_ms; });
    add_bars(out, tasks, apart);
    Lane lane{number, tasks.size(), 0, 0, 0};
    for (const NotedTask* task : tasks) {
      lane.compiled += task->outcome == "compiled";
      lane.busy_ms += task->total_ms, lane.compile_ms += task->compile_ms;
    }
    out.lanes.push_back(lane);
  }
  add_compiling(out, run);
  return out;
}

}  // namespace kiln::cli
