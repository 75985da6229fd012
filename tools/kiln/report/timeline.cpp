#include "tools/kiln/report/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace kiln::cli {
namespace {

constexpr std::size_t kParts = 160;
constexpr double kGaps = 400;  // an idle gap of 1/kGaps of the run is visible

/// The shortest length at which a task has its own bar.
double apart_from(const NotedRun& run) {
  if (run.tasks.size() <= kBarsApart) return 0;
  std::vector<double> lengths;
  for (const NotedTask& task : run.tasks) lengths.push_back(task.total_ms);
  const auto nth = lengths.begin() + kBarsApart;
  std::nth_element(lengths.begin(), nth, lengths.end(), std::greater<>());
  return std::nextafter(*nth, 1e300);  // excludes tasks of equal length, so that at most kBarsApart remain
}

/// Limits within which one bar may join short tasks.
struct Limits {
  double apart = 0;        ///< ms: a task of this length or more has its own bar
  double gap = 0;          ///< ms: longest idle gap inside a bar
  bool templates = false;  ///< true: a bar has tasks of one template only
};

void add_bars(TimeLine& out, const std::vector<const NotedTask*>& lane, const Limits& limits) {
  bool open = false;  // the last bar may take more tasks
  for (const NotedTask* task : lane) {
    const bool small = task->total_ms < limits.apart;
    if (open) {
      const Bar& before = out.bars.back();
      open = task->start_ms - before.end_ms <= limits.gap &&
             (!limits.templates || before.task->template_name == task->template_name);
    }
    if (!small || !open) out.bars.push_back({task, 0, 0, 0, 0, 0, 0});
    open = small;
    Bar& bar = out.bars.back();
    ++bar.tasks;
    bar.end_ms = std::max(bar.end_ms, task->end_ms());
    bar.compile_ms += task->compile_ms, bar.frontend_ms += task->frontend_ms;
    bar.nvvm_ms += task->nvvm_ms, bar.ptxas_ms += task->ptxas_ms;
  }
}

using Lanes = std::map<int, std::vector<const NotedTask*>>;

/// Joins tasks until the bars are few enough to draw. Each round bridges longer gaps, and the last round
/// joins templates, too: a note may have a gap or another template at every task.
void add_bars(TimeLine& out, const Lanes& lanes, double apart) {
  const double whole = out.last_ms - out.first_ms;
  for (double gap = whole / kGaps;; gap *= 4) {
    const bool last = gap >= whole;
    out.bars.clear();
    for (const auto& [number, tasks] : lanes) add_bars(out, tasks, {apart, gap, !last});
    if (last || out.bars.size() <= kBarsMost) return;
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
  Lanes lanes;
  for (int lane = 0; lane < run.jobs; ++lane) lanes[lane];  // an idle lane is shown, too
  out.first_ms = run.left_out && !run.tasks.empty() ? run.tasks.front().start_ms : 0;
  out.last_ms = run.wall_ms;
  for (const NotedTask& task : run.tasks) {
    lanes[task.lane].push_back(&task);
    out.first_ms = std::min(out.first_ms, task.start_ms);
    out.last_ms = std::max(out.last_ms, task.end_ms());
  }
  for (auto& [number, tasks] : lanes) {
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const NotedTask* a, const NotedTask* b) { return a->start_ms < b->start_ms; });
    Lane lane{number, tasks.size(), 0, 0, 0};
    for (const NotedTask* task : tasks) {
      lane.compiled += task->outcome == "compiled";
      lane.busy_ms += task->total_ms, lane.compile_ms += task->compile_ms;
    }
    out.lanes.push_back(lane);
  }
  add_bars(out, lanes, apart_from(run));
  add_compiling(out, run);
  return out;
}

}  // namespace kiln::cli
