// Header names that are made of macros: every name that the definitions of the scanned files allow.
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
  /// The names that `name` may become when the words in it are macros, without `name` itself. At most 256.
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
