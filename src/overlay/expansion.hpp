// The text of a declaration with all of its macros expanded, as a preprocessor would do it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "overlay/macros.hpp"

namespace kiln::source {

/// The expansions of a text, one for each choice of definitions of its macros: a reader of texts does not know which
/// branch of an #if a compiler takes. No result when there are more than 16 choices, and none for an expansion of
/// more than 128 Ki tokens or with more than 64 macros inside of each other. All expansions together may take 2 Mi
/// tokens.
std::optional<std::vector<std::string>> expansions_of(const Macros& macros, std::string_view text);
/// The text that may follow a call of a macro whose own end is `unclear`, by the end of its expansions.
MacroEnd end_of_call(const Macros& macros, std::string_view call);

}  // namespace kiln::source
