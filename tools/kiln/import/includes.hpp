// The headers that texts include as the compiler of a kernel would take them.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/kiln/import/declaration.hpp"

namespace kiln::cli {

/// Path and tokens of a text.
using IncludingText = std::pair<std::string_view, const Tokens*>;

/// Names of #include directives in the first text and in those that it includes, without those in branches for another compiler: #ifdef of a macro that no
/// text and no option defines. A condition that this reader does not understand counts as true.
std::set<std::string> included_headers(const std::vector<IncludingText>& texts, const Macros& define);

}  // namespace kiln::cli
