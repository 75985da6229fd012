// TOML text made shorter for its parser, which takes 150 instructions for each character: most of a manifest
// is one-line strings and comments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::source {

struct ShortToml {
  std::string text;  ///< line for line the given one; strings that are taken out are ""
  /// By line, from 1: the string that was taken out of it; data() is null where none was. Views of the given
  /// text.
  std::vector<std::string_view> strings;
};

/// Takes out the values of lines `key = "text"` and comments, where they are printable ASCII without escapes,
/// and blank lines' blanks: what cannot be wrong. When the short text is no TOML, neither is the given one,
/// and only the given one tells what people should know; when it is, both say the same but for what was taken
/// out.
ShortToml shorten_toml(std::string_view toml);

}  // namespace kiln::source
