// The errors in a compiler's log, one by one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::compile {

/// Views into the log.
struct Diagnostic {
  std::string_view file;     ///< as the compiler spells it; empty for ptxas and for errors without a place
  std::string_view line;     ///< its number, as text
  std::string_view message;  ///< the text after "error: "
  std::string_view source;   ///< the source line that the log shows; may be empty
  std::string_view word;     ///< the identifier at which the error points; may be empty

  /// "line 3 of norm.cuh", without the directories that only the compiler sees; "" when there is no place.
  std::string location() const;
};

/// Errors and fatal errors, without warnings and notes, in the log's order; at most 1000.
std::vector<Diagnostic> errors_of(std::string_view log);

}  // namespace kiln::compile
