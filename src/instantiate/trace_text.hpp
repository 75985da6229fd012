// The text of a record: a plan file that processes append to (KILN_RECORD).
//
//   # kiln record 1
//   [[prewarm]]
//   template = "rms_norm"
//   arch = "sm_90a"
//   T = "bf16"
//   ...
//   tuned = ["VEC", "THREADS"]   the call had left these open: a choice or their defaults gave their values
//   # end
//
// Version 1. A row goes from a line [[prewarm]] to the line "# end"; without that line it was never finished
// (its writer was killed, the power or the disk's room went away) and does not count. Everything else is a
// comment or damage.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/arch.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/specialization.hpp"

namespace kiln::source {

/// What a record begins with; and a beginning that it can do without, for people.
extern const std::string_view kTraceHeader, kTracePreamble;

/// Also of one whose first line has not reached the disk whole (zeros follow).
bool is_trace(std::string_view text) noexcept;

/// One finished row, with its end.
std::string trace_row(const Specialization& specialization, const base::Arch& arch);
/// Of a call: with what was left open in it.
std::string trace_row(const Resolved& resolved);

/// Calls `each` with every finished row's text. Returns where the text after the last one begins.
std::size_t each_finished_row(std::string_view text, const std::function<void(std::string_view)>& each);

/// The text with everything that is no finished row or comment blanked out, lines kept. Adds to `ignored`
/// "FILE:LINE: ..." for each such piece.
std::string finished_rows(std::string_view text, const std::string& file, std::vector<std::string>& ignored);

}  // namespace kiln::source
