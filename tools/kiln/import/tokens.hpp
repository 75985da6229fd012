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

}  // namespace kiln::cli
