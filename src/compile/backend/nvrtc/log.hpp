// Reads NVRTC's log and header trace as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/backend/backend.hpp"

namespace kiln::compile {

/// Moves the table that --time=- appends from the log to the response's phase times.
void take_phase_times(WorkerResponse& response);

/// Shortens a log to about 2 MiB: its beginning, and its end, where ptxas reports. A megabyte of source in
/// one line can give gigabytes of warnings, which the host must not hold.
void shorten(std::string& log);
/// Removes the line about `header.file` from a log as NVRTC wrote it, and sets `created` or `used`. Without
/// such a line nothing changes.
void take_header_message(HeaderOutcome& header, std::string& log, std::string_view program_name);

/// True when memory ran out, whatever the result code is: the front end reports it like
/// an error of the source.
bool says_out_of_memory(std::string_view log, std::string_view result) noexcept;

/// True when ptxas refused the front end's trace, which it reads again. FlashAttention-3's trace has 2.2 GB.
bool refuses_trace(const WorkerResponse& response) noexcept;

/// The files of a --fdevice-time-trace as the compiler spelled them, without its built-in header.
std::vector<std::string> traced_headers(std::string_view json);

/// The report of ptxas about one kernel of a successful compile.
PtxasReport read_ptxas_report(std::string_view log, std::string_view lowered_name);
/// The log without ptxas' info lines, as people want to see it.
std::string diagnostics_of(std::string_view log);

}  // namespace kiln::compile
