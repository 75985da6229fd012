// Textual scan of one file for everything it might include: a superset of what the preprocessor takes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::source {

struct IncludeDirective {
  std::string name;  ///< without quotes or brackets
  bool quoted = false;
  friend bool operator==(const IncludeDirective&, const IncludeDirective&) = default;
};

struct ScanResult {
  /// In order of appearance, repeats removed: #include, #include_next, #import and their digraph and
  /// line-spliced forms, anywhere in the text (comments and #if 0 too); arguments of __has_include and of any
  /// macro whose name contains "include" in any case; and header-like strings in #define lines (what a
  /// computed include may expand to).
  std::vector<IncludeDirective> directives;
  bool computed = false;   ///< has #include MACRO
  bool date_time = false;  ///< mentions __DATE__, __TIME__ or __TIMESTAMP__
};

ScanResult scan_includes(std::string_view text);

}  // namespace kiln::source
