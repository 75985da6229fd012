// Patterns for paths of files, as profiles have them.
#pragma once

#include <string_view>

namespace kiln::cli {

/// True when the whole of `path`, which is relative and has no "..", fits the pattern. `*` stands for any
/// characters of one name, `?` for one of them, and `**` for any number of names: "**/*.lock" also fits a file
/// at the top. All other characters stand for themselves.
bool fits(std::string_view pattern, std::string_view path);

}  // namespace kiln::cli
