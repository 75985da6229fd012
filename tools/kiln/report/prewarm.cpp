// The page's text about the last prewarm.
#include "tools/kiln/report/prewarm.hpp"
#include "tools/kiln/report/tables.hpp"

#include <cstdint>
#include <cstdio>

#include "tools/kiln/report/page.hpp"
#include "tools/kiln/report/table.hpp"
#include "tools/kiln/report/timeline.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kLanesOpen = 16;

std::string summary_of(const NotedRun& run) {
  std::string out = utc_text(static_cast<std::int64_t>(run.started_ms / 1000)) + ": " +
                    counted(run.total, "specialisation") + " in " + human_ms(run.wall_ms) + " on " +
                    counted(static_cast<std::uint64_t>(run.jobs), "lane") + ", " +
                    std::to_string(run.compiled) + " compiled, " + std::to_string(run.from_disk) +
                    " already there";
  const std::pair<std::uint64_t, const char*> more[] = {
      {run.waited, " made by another process"}, {run.failed, " failed"}, {run.not_started, " not started"}};
  for (const auto& [count, words] : more) {
    if (count) out += ", " + std::to_string(count) + words;
  }
  if (run.cpu_ms && run.wall_ms > 0) {
    char cores[32];
    std::snprintf(cores, sizeof cores, "%.1f", *run.cpu_ms / run.wall_ms);
    out += "; CPU " + human_ms(*run.cpu_ms) + ", " + cores + " cores";
  }
  out += ". ";
  if (run.interrupted) out += "It was interrupted. ";
  if (run.left_out) out += "The first " + std::to_string(run.left_out) + " are not drawn. ";
  return out +
         "A lane is a thread of the prewarm with its compile worker. The lengths of phases are measured; "
         "a bar shows them as if its compile ended with it.";
}

}  // namespace

std::string prewarm_lead_html(const ReportData& data) {
  if (!data.prewarm.run) {
    return data.prewarm.problem.empty() ? "No prewarm that compiled something is noted here. &#39;kiln "
                                          "prewarm&#39; notes its last run."
                                        : "The note of the last prewarm cannot be read.";
  }
  return html(summary_of(*data.prewarm.run));
}

std::string lanes_table_html(const ReportData& data) {
  if (!data.prewarm.run) return {};
  const NotedRun& run = *data.prewarm.run;
  const TimeLine line = time_line_of(run);
  const double wall = line.last_ms - line.first_ms;
  std::vector<std::vector<Cell>> rows;
  for (const Lane& lane : line.lanes) {
    const double idle = wall > 0 ? std::max(0.0, 1 - lane.busy_ms / wall) : 0;
    rows.push_back({count_cell(static_cast<std::uint64_t>(lane.number) + 1), count_cell(lane.tasks),
                    count_cell(lane.compiled), ms_cell(lane.busy_ms), ms_cell(lane.compile_ms),
                    percent_cell(idle), bar_cell(1 - idle)});
  }
  return std::string(rows.size() <= kLanesOpen ? "<details open>" : "<details>") +
         "<summary>Lanes as a table</summary>\n" +
         table_html("Lanes of the last prewarm",
                    {{"Lane", true},
                     {"Tasks", true},
                     {"Compiled", true},
                     {"Busy", true},
                     {"In the compiler", true},
                     {"Idle", true},
                     {"Busy, drawn"}},
                    rows) +
         "</details>\n";
}

}  // namespace kiln::cli
