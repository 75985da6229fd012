// A prewarm as a trace for chrome://tracing and Perfetto.
#pragma once

#include <string>

#include "tools/kiln/plan/note.hpp"

namespace kiln::cli {

/// Throws, before anything is compiled, when FILE cannot be written: Error(io), or Error(invalid_argument)
/// for "-", because stdout is used for results.
void check_trace_file(const std::string& path);

/// Writes Chrome's trace-event format. There is one row for each lane and one complete event for each task
/// (category "specialisation"), with the phases of its compile inside (category "phase"). Only the lengths of
/// phases are known, so they are placed in order up to the task's end.
std::string trace_text(const NotedRun& run);

}  // namespace kiln::cli
