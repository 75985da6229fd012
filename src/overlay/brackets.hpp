// Pairs of brackets in the tokens of a text, also where directives stand between them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "overlay/tokens.hpp"

namespace kiln::source {

/// Follows parentheses and braces through conditional text: every branch of an #if begins at the depth of
/// the #if.
class Nesting {
 public:
  /// Takes a directive with its line.
  void directive(std::string_view line);
  void open() { ++depth_; }
  void close() { depth_ = depth_ > 0 ? depth_ - 1 : 0; }
  int depth() const { return depth_; }
  /// True when the text has a part of a conditional, but not all of it.
  bool crosses() const { return crosses_ || !before_.empty(); }

 private:
  int depth_ = 0;
  bool crosses_ = false;
  std::vector<int> before_;
};

/// Positions of tokens, from `begin` up to `end`.
struct TokenRange {
  std::size_t begin = 0, end = 0;
};

/// A view of tokens. Positions are indices of tokens, and every position is allowed.
class TokenView {
 public:
  explicit TokenView(const std::vector<Token>& tokens) : tokens_(tokens) {}

  /// A symbol without text after the last token.
  const Token& operator[](std::size_t i) const;
  std::size_t size() const { return tokens_.size(); }
  /// The position after the group of brackets that opens at i.
  std::size_t after_group(std::size_t i, std::size_t end) const;
  /// The position after the template arguments that open at i; i when they do not end. A '<' inside of them opens
  /// others when it stands after a word. When the arguments do not end so, a '<' between blanks is an operator:
  /// enable_if_t<N < 4>.
  std::size_t after_angles(std::size_t i, std::size_t end) const;
  /// The pieces between commas outside of brackets. Empty pieces are left out.
  std::vector<TokenRange> pieces(std::size_t from, std::size_t to) const;
  /// True for the first '<' of a '<<' that no blank divides. No template arguments open so.
  bool is_shift(std::size_t i) const;
  std::size_t after_directives(std::size_t i, std::size_t end) const;
  /// The words from one position to another, each once. A directive has the words after its name.
  std::vector<std::string_view> words(std::size_t from, std::size_t to) const;

 private:
  std::size_t read_angles(std::size_t i, std::size_t end, bool spaced_is_less) const;
  bool closes_angles(std::size_t after, std::size_t open) const;
  bool is_spaced(std::size_t i) const;

  const std::vector<Token>& tokens_;
};

}  // namespace kiln::source
