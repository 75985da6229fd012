// The run-time sizes of one `kiln run`. "rows=1,64" is a list, and several lists are combined.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/run/case.hpp"

namespace kiln::cli {

/// Values that the user set for one argument or run-time value. There is at least one; it may be empty text.
struct GivenList {
  std::string name;
  std::vector<std::string> values;
};

/// Splits a name and a list, such as "rows" and "1,64,4096".
GivenList parse_list(std::string_view name, std::string_view text);
/// All combinations of the lists; the last list varies fastest. Without lists there is one size with no given
/// values. Throws Error(invalid_argument) for a repeated name, and for more than a thousand sizes.
std::vector<GivenArguments> sizes_of(const std::vector<GivenList>& lists);

}  // namespace kiln::cli
