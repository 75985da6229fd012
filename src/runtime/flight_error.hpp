// A compile's final error on its way through the board of the flight file to the processes that waited for
// it.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace kiln::runtime {

/// Format 1: u32 format, i32 code, u8 whether it is a CompileError, then message, specialisation, options and
/// log as bytes. At most `limit` bytes: message and options are cut before the log is. Empty for anything
/// that is no Error of ours.
std::string encode_flight_error(const std::exception_ptr& error, std::size_t limit);
/// The same error again; null when the bytes are none (another version of kiln wrote them).
std::exception_ptr decode_flight_error(std::string_view bytes);

}  // namespace kiln::runtime
