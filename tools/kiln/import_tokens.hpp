// CUDA C++ text as words and punctuation: without comments, directives and what lies in strings. No
// preprocessor: of the branches of a conditional either the first or the last is read.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::cli {

struct Token {
  enum class Kind { word, number, literal, punctuation };
  Kind kind = Kind::punctuation;
  std::string
      text;      ///< of a literal its first and last characters at least; "::", "->", "<=" and "<<" are one
  int line = 0;  ///< from 1
  bool is(std::string_view other) const noexcept { return text == other && kind != Kind::literal; }
  bool is_word() const noexcept { return kind == Kind::word; }
};
using Tokens = std::vector<Token>;

/// Name -> text; without parameters.
using Macros = std::vector<std::pair<std::string, std::string>>;

struct LexedSource {
  Tokens tokens;
  /// "cuda_fp16.h": of the branches that were read.
  std::vector<std::string> includes;
  Macros kernel_macros;  ///< those of the text that say __global__
};

/// Which branch of #if ... #else is read. `#if 0` and `#if 1` are understood in both.
enum class Branches { first, last };

/// Never throws for what the text holds. Two sorts of macros are expanded: `given`, whatever the text says of
/// them, and those that it defines without parameters and with __global__ in a short body.
LexedSource lex(std::string_view text, Branches branches, const Macros& given = {});

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
