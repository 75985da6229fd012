// Errors as this command shows them: one line on stderr, an exit code, and with --json an object on stdout.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "kiln/error.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {

/// "unknown_template"; part of the JSON contract.
std::string_view name_of(Errc code) noexcept;
Exit exit_of(Errc code) noexcept;

/// Prints "kiln: error: MESSAGE" and, with --json, the error object. Returns the exit code.
Exit report(const Context& context, Errc code, const std::string& message);
/// Reports damage that was found. Prints as `report` does; the code of the error object is
/// "damaged". Returns kDamaged.
Exit report_damage(const Context& context, const std::string& message);
/// Reports the exception in flight as `report` does. REQUIRES: called inside a catch block.
Exit report_current(const Context& context);

/// Returns the first line of a compiler's log that contains "error", else the first line of the message.
std::string first_diagnostic(const std::exception& error);
/// Returns the message's first line, and the first diagnostic where that is another line: "A: B".
std::string brief_of(const std::exception& error);

}  // namespace kiln::cli
