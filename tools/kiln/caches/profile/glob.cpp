#include "tools/kiln/caches/profile/glob.hpp"

namespace kiln::cli {

bool fits(std::string_view pattern, std::string_view path) noexcept {
  while (!pattern.empty()) {
    if (pattern.starts_with("**")) {
      const bool names = pattern.starts_with("**/");
      pattern.remove_prefix(names ? 3 : 2);
      if (pattern.empty()) return true;
      for (std::size_t at = 0; at <= path.size(); ++at) {
        const bool starts_a_name = at == 0 || path[at - 1] == '/';
        if ((!names || starts_a_name) && fits(pattern, path.substr(at))) return true;
      }
      return false;
    }
    if (pattern.front() == '*') {
      pattern.remove_prefix(1);
      for (std::size_t at = 0; at <= path.size(); ++at) {
        if (fits(pattern, path.substr(at))) return true;
        if (at < path.size() && path[at] == '/') return false;
      }
      return false;
    }
    if (path.empty() || (pattern.front() == '?' ? path.front() == '/' : pattern.front() != path.front()))
      return false;
    pattern.remove_prefix(1);
    path.remove_prefix(1);
  }
  return path.empty();
}

}  // namespace kiln::cli
