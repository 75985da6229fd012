// A noted prewarm made small enough to draw: bars, lanes, and how many lanes compiled when.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/prewarm/note.hpp"

namespace kiln::cli {

/// One task, or neighbours of one lane that are too short to be drawn apart.
struct Bar {
  const NotedTask* task = nullptr;  ///< the first
  std::size_t tasks = 1;
  double end_ms = 0;
  double compile_ms = 0, frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0;  ///< sums
};

struct Lane {
  int number = 0;
  std::size_t tasks = 0, compiled = 0;
  double busy_ms = 0, compile_ms = 0;  ///< in tasks; of it in the compiler
};

struct TimeLine {
  double first_ms = 0, last_ms = 0;  ///< since the run's start; what was left out lies before the first
  std::vector<Bar> bars;             ///< by lane, then start
  std::vector<Lane> lanes;
  std::vector<double> compiling;  ///< mean number of lanes in the compiler, for equal parts of the run
};

/// Tasks that are drawn apart, the longest ones; and how many bars there may be before more than neighbours
/// of one template share one.
inline constexpr std::size_t kBarsApart = 1500, kBarsMost = 6000;

TimeLine time_line_of(const NotedRun& run);

}  // namespace kiln::cli
