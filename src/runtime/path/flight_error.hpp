// Carries a compile's final error through the board of the flight file to the processes that waited for it.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace kiln::runtime {

/// The error as at most `limit` bytes. Empty for an exception that is no Error of ours. `limit_s`: the
/// seconds that the compile was allowed to take.
/// Format 2: u32 format, f64 `limit_s`, i32 code, u8 (1: a CompileError), then message, specialisation,
/// options and log as bytes. Options are cut first, then message, specialisation and log.
std::string encode_flight_error(const std::exception_ptr& error, double limit_s, std::size_t limit);
/// The error that the bytes encode. Null when they have another format (another version of kiln wrote them).
/// Null, too, for a timeout after less than `own_limit_s` seconds: this process's own compile may then come
/// to an end.
std::exception_ptr decode_flight_error(std::string_view bytes, double own_limit_s);

}  // namespace kiln::runtime
