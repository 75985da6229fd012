// Textual scan of one file for everything it might include: a superset of what the preprocessor takes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::source {

struct IncludeDirective {
  std::string name;  ///< without quotes or brackets
  bool quoted = false;
  bool next = false;  ///< #include_next: any directory of the search path may serve it
  friend bool operator==(const IncludeDirective&, const IncludeDirective&) = default;
};

struct ScanResult {
  /// In order of appearance, repeats removed: #include, #include_next, #import, #embed and their digraph,
  /// trigraph and line-spliced forms, wherever a directive can stand (#if 0 and block comments too, but not
  /// behind
  /// "//" or other text of the same line); arguments of __has_include and of any macro whose name contains
  /// "include" in any case, anywhere; and header-like strings in #define, #if and #elif lines (what a
  /// computed include may expand to, and what a wrapped __has_include may ask for), absolute ones excepted:
  /// most are no header's (see absolutes).
  std::vector<IncludeDirective> directives;
  /// Object-like macros that stand for one word or path, in order: what a header-like string may be put
  /// together from (Thrust: <__THRUST_HOST_SYSTEM_ROOT/detail/execution_policy.h>).
  std::vector<std::pair<std::string, std::string>> definitions;
  /// First words of computed includes and probes (#include F, __has_include(F)): macros.
  std::vector<std::string> operands;
  /// Macros whose definition spells an absolute header name, and that spelling: "\"/dev/zero\"".
  std::vector<std::pair<std::string, std::string>> absolutes;
  bool computed = false;        ///< has #include MACRO
  bool computed_probe = false;  ///< has __has_include with anything but a literal
  bool date_time = false;       ///< mentions __DATE__, __TIME__ or __TIMESTAMP__
};

ScanResult scan_includes(std::string_view text);

}  // namespace kiln::source
