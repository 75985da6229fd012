// What NVRTC's log and header trace say, read as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/backend/backend.hpp"

namespace kiln::compile {

/// Takes the table that --time=- appends out of the log and into the response's phase times.
void take_phase_times(WorkerResponse& response);

/// At most 2 MiB of a log, its beginning and its end (where ptxas reports): a megabyte of source in one line
/// can warn for gigabytes, and the host must not hold them.
void shorten(std::string& log);
/// Takes the line that says what became of `header.file` out of a log as NVRTC wrote it, and notes `created`
/// or `used`; without one nothing changes.
void take_header_message(HeaderOutcome& header, std::string& log, std::string_view program_name);

/// Memory ran out, whatever the result code says: the front end reports it like an error of the source.
bool says_out_of_memory(std::string_view log, std::string_view result) noexcept;

/// ptxas reads the front end's trace again, and refuses one of gigabytes (FlashAttention-3: 2.2 GB).
bool refuses_trace(const WorkerResponse& response) noexcept;

/// Files of a --fdevice-time-trace, as the compiler spelled them; its built-in header left out.
std::vector<std::string> traced_headers(std::string_view json);

/// For one kernel of a successful compile.
PtxasReport read_ptxas_report(std::string_view log, std::string_view lowered_name);
/// The log without ptxas' info lines: what a person wants to see.
std::string diagnostics_of(std::string_view log);

}  // namespace kiln::compile
