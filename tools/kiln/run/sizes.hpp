// The run-time sizes of one `kiln run`: "rows=1,64" is a list, and lists multiply.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/run/case.hpp"

namespace kiln::cli {

/// What the caller set one argument or run-time value to; one value at least, which may be empty text.
struct GivenList {
  std::string name;
  std::vector<std::string> values;
};

/// "rows", "1,64,4096"
GivenList parse_list(std::string_view name, std::string_view text);
/// The product of the lists, the last one varying fastest; without lists, the one size that nothing was said
/// about. Throws Error(invalid_argument) for one name twice, and for more than a thousand sizes.
std::vector<GivenArguments> sizes_of(const std::vector<GivenList>& lists);

}  // namespace kiln::cli
