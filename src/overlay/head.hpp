// The head of a declaration: everything outside of its brackets. It tells the kind of the declaration and the
// names that it declares.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "overlay/brackets.hpp"
#include "overlay/outline.hpp"

namespace kiln::source {

/// The tokens of a declaration outside of its brackets, up to its body.
struct Head {
  std::vector<std::size_t> tokens;  ///< indices; of a group only its opening bracket
  std::size_t body = kNoDeclaration, body_end = 0;
  bool crosses = false;
};

class HeadReader {
 public:
  explicit HeadReader(TokenView tokens) : tokens_(tokens) {}

  bool is_function(const Head& head) const;
  /// True for a class or an enum with a body.
  bool is_type(const Head& head) const;
  /// The names that a class or an enum with a body declares. The declaration ends at `end`.
  std::vector<std::string_view> type_names(const Head& head, std::size_t end) const;
  /// Sets the kind, the names and the specifiers.
  void describe(Declaration& out, const Head& head, std::size_t end) const;
  /// Sets what a specialisation has. `parameters` are the words of its template parameters.
  void specialise(Declaration& out, const Head& head, const std::vector<std::string_view>& parameters) const;

 private:
  using Words = std::vector<std::string_view>;
  std::size_t inner_name(std::size_t i) const;
  bool is_attribute(const Head& head, std::size_t k) const;
  bool is_guide(const Head& head) const;
  Words function_names(const Head& head) const;
  std::size_t after_angles(const Head& head, std::size_t k) const;
  const std::size_t* class_key(const Head& head) const;
  Words variable_names(const Head& head) const;

  TokenView tokens_;
};

/// True for words that parentheses follow without a function: alignas, __launch_bounds__.
bool takes_parentheses(std::string_view word);
/// True for words of more than one letter without lower-case letters.
bool is_macro_like(std::string_view word);
/// The keyword of an attribute: __attribute__((device)) is __device__. Empty for other words.
std::string_view attribute_space(std::string_view word);
bool contains(const std::vector<std::string_view>& words, std::string_view word);

}  // namespace kiln::source
