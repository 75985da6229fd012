// A prewarm as a trace that chrome://tracing and Perfetto open.
#pragma once

#include <string>

#include "tools/kiln/prewarm/note.hpp"

namespace kiln::cli {

/// Throws before anything is compiled where FILE cannot be written: Error(io), Error(invalid_argument) for
/// "-", which is where the results go.
void check_trace_file(const std::string& path);

/// In Chrome's trace-event format: one row per lane, a complete event per task (category "specialisation")
/// with the phases of its compile inside (category "phase"). Only the lengths of phases are known: they are
/// laid in their order against the end of the task.
std::string trace_text(const NotedRun& run);

}  // namespace kiln::cli
