// The directives of a scan as one line of text.
#pragma once

#include <string>

#include "closure/include_scan.hpp"

namespace kiln::source {

/// Every directive as written, such as "<a> \"b\" n<c>"; n marks #include_next.
inline std::string shown(const ScanResult& scan) {
  std::string out;
  for (const IncludeDirective& d : scan.directives) {
    out += (out.empty() ? "" : " ") + std::string(d.next ? "n" : "") +
           (d.quoted ? '"' + d.name + '"' : '<' + d.name + '>');
  }
  return out;
}
inline std::string scan(const std::string& text) { return shown(scan_includes(text)); }

}  // namespace kiln::source
