// Header names that are put together from macros: every name that the definitions of the scanned files allow.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "closure/include_scan.hpp"

namespace kiln::source {

class HeaderMacros {
 public:
  void add(const ScanResult& scan);
  /// What `name` may become when the words in it are macros; not the name itself. At most 256 names.
  std::vector<std::string> expand(const std::string& name) const;

 private:
  struct Expansion {
    std::vector<std::string> names;
    int steps = 0;
  };
  void expand(const std::string& name, int depth, Expansion& out) const;
  std::unordered_map<std::string, std::vector<std::string>> values_;
};

}  // namespace kiln::source
