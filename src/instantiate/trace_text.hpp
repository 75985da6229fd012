// The text of a trace: a plan file that processes append to (KILN_RECORD).
//
//   # kiln record 1
//   [[prewarm]]
//   template = "rms_norm"
//   arch = "sm_90a"
//   T = "bf16"
//   ...
//   tuned = ["VEC", "THREADS"]   left open by the call: a tuned choice or defaults gave their values
//   # end
//
// Version 1. A row goes from a line [[prewarm]] to the line "# end". A row without "# end" was never
// finished, because its writer was killed, the power failed or the disk was full; it does not count.
// Everything else is a comment or damage.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/arch.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/specialization.hpp"

namespace kiln::source {

/// The first line of a trace, and the explanation for people that follows it. The
/// explanation may be missing.
extern const std::string_view kTraceHeader, kTracePreamble;

/// True for a trace, even when its first line is not wholly on the disk and zeros follow.
bool is_trace(std::string_view text) noexcept;

/// One finished row, including its "# end" line.
std::string trace_row(const Specialization& specialization, const base::Arch& arch);
/// The row of a resolved call. Parameters that the call left open are listed as `tuned`, or left out when
/// the call is undecided.
std::string trace_row(const Resolved& resolved);

/// Calls `each` with the text of every finished row. Returns the offset after the last finished row.
std::size_t each_finished_row(std::string_view text, const std::function<void(std::string_view)>& each);

/// The text with everything blanked out that is neither a finished row nor a comment; line numbers stay. Adds
/// "FILE:LINE: ..." to `ignored` for each blanked piece.
std::string finished_rows(std::string_view text, const std::string& file, std::vector<std::string>& ignored);

}  // namespace kiln::source
