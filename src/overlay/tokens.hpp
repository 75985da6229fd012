// Splits C++ text into tokens, as far as a reader needs them who looks for declarations.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace kiln::source {

struct Token {
  enum class Kind : std::uint8_t {
    word,       ///< an identifier or a keyword
    literal,    ///< a number, a string or a character
    symbol,     ///< one character, or "::"
    directive,  ///< a line that begins with '#', with its continuations
  };
  Kind kind = Kind::symbol;
  std::string_view text;  ///< part of the text that was split

  bool is_word() const noexcept { return kind == Kind::word; }
  bool is(std::string_view other) const noexcept { return text == other; }
};

/// Words of texts that outlive the set.
using WordSet = std::unordered_set<std::string_view>;

/// The tokens of a text in order, without comments. Any bytes are allowed: an unfinished comment, string or
/// character reaches to the end of the text or of its line.
std::vector<Token> tokens_of(std::string_view text);

/// The word that says what a directive does ("define", "if"), and the text after it.
struct DirectiveText {
  std::string_view name, rest;
};
DirectiveText directive_text(std::string_view line);

}  // namespace kiln::source
