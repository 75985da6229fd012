// Finds where the brackets of a text can no longer be paired. Branches of an #if, and macros that open or close a
// block, may hide from a reader of tokens where a declaration ends.
#pragma once

#include <cstddef>
#include <vector>

#include "overlay/macros.hpp"
#include "overlay/tokens.hpp"

namespace kiln::source {

/// The first token from which brackets cannot be paired, or the number of tokens. It is an #if whose branches end at
/// different depths or close a bracket from before it, or a macro with such a replacement. Brackets of namespaces
/// and of extern "C" do not count.
std::size_t first_unpaired(const std::vector<Token>& tokens, const Macros& macros);

}  // namespace kiln::source
