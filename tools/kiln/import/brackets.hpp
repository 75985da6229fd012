// Navigation between tokens: brackets, lists, and text made from tokens.
#pragma once

#include "tools/kiln/import/tokens.hpp"

namespace kiln::cli {

/// Text of the tokens with blanks between words and none around punctuation: "const std::array<int, 4>*".
std::string joined(const Tokens& tokens, std::size_t begin, std::size_t end);
inline std::string joined(const Tokens& tokens) { return joined(tokens, 0, tokens.size()); }
/// The index after the bracket that closes the one at `open` ('(', '[' or '{'); `end` when no
/// bracket closes it.
std::size_t behind_bracket(const Tokens& tokens, std::size_t open, std::size_t end);
/// The index after the '>' that closes the '<' at `open`, where brackets nest. `end` when nothing closes it
/// before a ';'.
std::size_t behind_angle(const Tokens& tokens, std::size_t open, std::size_t end);
/// Ranges between commas that lie in no bracket. An empty input has no ranges.
struct TokenRange {
  std::size_t begin, end;
};
std::vector<TokenRange> between_commas(const Tokens& tokens, std::size_t begin, std::size_t end);

}  // namespace kiln::cli
