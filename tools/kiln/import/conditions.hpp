// Follows #if, #ifdef, #elif and #else as far as the names of macros tell.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "overlay/tokens.hpp"

namespace kiln::cli {

/// Takes the directives of texts in the order of the preprocessor. The views must outlive this object.
class Conditions {
 public:
  enum class Truth : std::uint8_t { no, maybe, yes };

  /// A name that is defined twice with two values has a value that is not known.
  void define(std::string_view name, std::string_view value);
  void directive(const source::DirectiveText& directive);
  /// `yes` when the directives so far let the compiler see what follows.
  Truth now() const;
  bool active() const { return now() != Truth::no; }
  std::size_t depth() const noexcept { return open_.size(); }
  /// Closes conditionals that a text left open.
  void leave(std::size_t depth) { open_.resize(std::min(depth, open_.size())); }

 private:
  struct Branch {
    Truth now = Truth::maybe, before = Truth::no;  ///< before: whether an earlier branch was taken
  };
  class Reader;
  static Truth inverted(Truth t);
  Truth is_defined(std::string_view name) const;
  Truth value_of(std::string_view name) const;
  Truth condition(std::string_view text) const;

  std::map<std::string_view, Truth> defined_;  ///< with the value
  std::vector<Branch> open_;
};

}  // namespace kiln::cli
