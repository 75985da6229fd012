// A noted prewarm reduced to what can be drawn: bars, lanes, and the number of compiling lanes over time.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/plan/note.hpp"

namespace kiln::cli {

/// One task, or neighbours in one lane that are too short for bars of their own.
struct Bar {
  const NotedTask* task = nullptr;  ///< the first task
  std::size_t tasks = 1;
  double end_ms = 0;
  double compile_ms = 0, frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0;  ///< sums
};

struct Lane {
  int number = 0;
  std::size_t tasks = 0, compiled = 0;
  double busy_ms = 0, compile_ms = 0;  ///< busy_ms: in tasks; compile_ms: the part of it in the compiler
};

struct TimeLine {
  double first_ms = 0, last_ms = 0;  ///< since the run's start; tasks that were left out lie before first_ms
  std::vector<Bar> bars;             ///< by lane, then start
  std::vector<Lane> lanes;
  std::vector<double> compiling;  ///< mean number of compiling lanes in each of equal parts of the run
};

/// kBarsApart is how many of the longest tasks have their own bars. Above kBarsMost bars, a bar may also join
/// tasks across longer gaps and different templates.
inline constexpr std::size_t kBarsApart = 1500, kBarsMost = 6000;

TimeLine time_line_of(const NotedRun& run);

}  // namespace kiln::cli
