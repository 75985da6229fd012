// Finding one's way between tokens: brackets, lists, and text made of them again.
#pragma once

#include "tools/kiln/import/tokens.hpp"

namespace kiln::cli {

/// Words apart, punctuation close: "const std::array<int, 4>*".
std::string joined(const Tokens& tokens, std::size_t begin, std::size_t end);
inline std::string joined(const Tokens& tokens) { return joined(tokens, 0, tokens.size()); }
/// Behind the bracket that closes the one at `open` ('(', '[' or '{'); the end when nothing does.
std::size_t behind_bracket(const Tokens& tokens, std::size_t open, std::size_t end);
/// The same for the '<' of template parameters or arguments; brackets inside count. `end` when nothing closes
/// it before a ';'.
std::size_t behind_angle(const Tokens& tokens, std::size_t open, std::size_t end);
/// Ranges between commas that lie in no bracket. Of nothing: none.
struct TokenRange {
  std::size_t begin, end;
};
std::vector<TokenRange> between_commas(const Tokens& tokens, std::size_t begin, std::size_t end);

}  // namespace kiln::cli
