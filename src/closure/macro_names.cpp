#include "closure/macro_names.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace kiln::source {
namespace {

constexpr std::size_t kMaxNames = 256;
constexpr int kMaxDepth = 8;     // depth of macros that name macros
constexpr int kMaxSteps = 4096;  // steps of one expansion, so that no set of definitions makes it endless

}  // namespace

void HeaderMacros::add(const ScanResult& scan) {
  for (const auto& [name, value] : scan.definitions) {
    std::vector<std::string>& known = values_[name];
    if (std::find(known.begin(), known.end(), value) == known.end()) known.push_back(value);
  }
}

std::vector<std::string> HeaderMacros::expand(const std::string& name) const {
  Expansion out;
  expand(name, 0, out);
  out.names.erase(std::remove(out.names.begin(), out.names.end(), name), out.names.end());
  return std::move(out.names);
}

void HeaderMacros::expand(const std::string& name, int depth, Expansion& out) const {
  if (out.names.size() >= kMaxNames || ++out.steps > kMaxSteps) return;
  for (std::size_t begin = 0; depth < kMaxDepth && begin < name.size();) {
    if (!base::is_identifier_character(name[begin])) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < name.size() && base::is_identifier_character(name[end])) ++end;
    const auto found = values_.find(name.substr(begin, end - begin));
    if (found != values_.end()) {
      for (const std::string& value : found->second) {
        expand(name.substr(0, begin) + value + name.substr(end), depth + 1, out);
      }
      return;
    }
    begin = end;
  }
  if (std::find(out.names.begin(), out.names.end(), name) == out.names.end()) out.names.push_back(name);
}

}  // namespace kiln::source
