// Textual scan of one file for everything that it might include. The result has at least the includes that
// the preprocessor takes.
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
  /// Names that the file may include, in order of appearance and without repeats:
  /// - Operands of #include, #include_next, #import and #embed, also in digraph, trigraph and
  ///   line-spliced form. Directives in #if 0 and in block comments count. Directives after "//" or other
  ///   text of the line do not.
  /// - Arguments of __has_include, and of any macro whose name contains "include" in any case, anywhere.
  /// - Header-like strings in #define, #if and #elif lines. A computed include may expand to them, or a
  ///   wrapped __has_include may ask for them. Absolute names are left out, because most are not
  ///   headers (see `absolutes`).
  std::vector<IncludeDirective> directives;
  /// Object-like macros that stand for one word or path, in order. A header-like string may be made of them
  /// (Thrust: <__THRUST_HOST_SYSTEM_ROOT/detail/execution_policy.h>).
  std::vector<std::pair<std::string, std::string>> definitions;
  /// Macros that are the first word of a computed include or probe: #include F, __has_include(F).
  std::vector<std::string> operands;
  /// Macros whose definition spells an absolute header name, each with that spelling: "\"/dev/zero\"".
  std::vector<std::pair<std::string, std::string>> absolutes;
  bool computed = false;        ///< has #include MACRO
  bool computed_probe = false;  ///< has __has_include with anything but a literal
  bool date_time = false;       ///< mentions __DATE__, __TIME__ or __TIMESTAMP__
};

ScanResult scan_includes(std::string_view text);

}  // namespace kiln::source
