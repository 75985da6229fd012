// A note about the last prewarm of a store: DIR/v1/prewarm.json, which `kiln report` draws. It is for people
// only: nothing else reads it, and a fault costs only the picture.
//
// The file, version 1, is one JSON object with these fields:
// - format ("kiln.prewarm-run/1"), version (kiln's), jobs
// - started_ms (since 1970), wall_ms, cpu_ms (or null)
// - total, from_disk, compiled, waited, failed, not_started, interrupted, left_out
// - tasks: the started tasks by start time; only the last kNotedTasks of them. Each has
//   - template, params, arch, key ("" for a failure), outcome, lane
//   - start_ms and total_ms (since started_ms), compile_ms, frontend_ms, nvvm_ms, ptxas_ms
//
// Any other content is ignored with a reason, and replaced by the next run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/plan/run.hpp"

namespace kiln::cli {

inline constexpr std::size_t kNotedTasks = 20'000;
inline constexpr std::size_t kNoteBytes = std::size_t{16} << 20;

struct NotedTask {
  std::string template_name, params, arch, key, outcome;
  int lane = 0;  ///< the prewarm's thread; one worker works for it at a time
  double start_ms = 0, total_ms = 0;
  double compile_ms = 0, frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0;

  double end_ms() const noexcept { return start_ms + total_ms; }
};

struct NotedRun {
  std::string version;
  double started_ms = 0, wall_ms = 0;
  std::optional<double> cpu_ms;
  int jobs = 1;
  std::uint64_t total = 0, from_disk = 0, compiled = 0, waited = 0, failed = 0, not_started = 0, left_out = 0;
  bool interrupted = false;
  std::vector<NotedTask> tasks;
};

/// The run with all started tasks, by start time.
NotedRun noted_run(const PrewarmPlan& plan, const PrewarmResult& result);

/// Milliseconds with three decimals.
double rounded(double ms) noexcept;
/// The figures of a run, without its tasks: wall_ms, cpu_ms (or null), jobs, total, from_disk, compiled, waited,
/// failed, not_started.
Json figures_json(const NotedRun& run);

/// Replaces the note (mode 0600). A run that found everything in the cache keeps the note of an earlier run.
/// Never fails: a note that cannot be written is a line in the debug log.
void write_note(const std::string& directory, NotedRun run) noexcept;

struct Note {
  std::optional<NotedRun> run;
  std::string problem;  ///< why an existing note is ignored
};
/// Does not trust the file: it follows no symlink and checks every field.
Note read_note(const std::string& directory);

}  // namespace kiln::cli
