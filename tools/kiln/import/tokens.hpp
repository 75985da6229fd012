// CUDA C++ text as words and punctuation, without comments, directives and the contents of strings. There is
// no preprocessor: it reads either the first or the last branch of each conditional.
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

/// Name -> text of macros without parameters.
using Macros = std::vector<std::pair<std::string, std::string>>;

struct LexedSource {
  Tokens tokens;
  /// Names such as "cuda_fp16.h", from the branches that were read.
  std::vector<std::string> includes;
  Macros kernel_macros;  ///< macros of the text whose body contains __global__
};

/// Which branch of #if ... #else is read. Both modes evaluate `#if 0` and `#if 1`.
enum class Branches { first, last };

/// Never throws because of the text. It expands two sorts of macros:
/// - `given`, whatever the text defines;
/// - macros that the text defines without parameters and with __global__ in a short body.
LexedSource lex(std::string_view text, Branches branches, const Macros& given = {});

}  // namespace kiln::cli
