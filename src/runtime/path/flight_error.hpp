// A compile's final error on its way through the board of the flight file to the processes that waited for
// it.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace kiln::runtime {

/// Format 2: u32 format, f64 `limit_s`, i32 code, u8 whether it is a CompileError, then message,
/// specialisation, options and log as bytes. At most `limit` bytes: message and options are cut before the
/// log is. Empty for anything that is no Error of ours. `limit_s`: how long the compile was allowed to take.
std::string encode_flight_error(const std::exception_ptr& error, double limit_s, std::size_t limit);
/// The same error again; null when the bytes are none (another version of kiln wrote them), or when it is a
/// timeout after less than `own_limit_s`: then one's own compile may come to an end.
std::exception_ptr decode_flight_error(std::string_view bytes, double own_limit_s);

}  // namespace kiln::runtime
