#include "tools/kiln/caches/profile/glob.hpp"

#include <algorithm>
#include <string>

namespace kiln::cli {

/// All ways to fit are followed at once, so the time is at most the product of the two lengths.
bool fits(std::string_view pattern, std::string_view path) {
  std::string fit(path.size() + 1, 0);  // [i]: the pattern so far fits the first i characters of the path
  fit[0] = 1;
  while (!pattern.empty()) {
    bool any = false;  // a shorter beginning fits, and the star may take what follows it
    if (pattern.starts_with("**")) {
      const bool names = pattern.starts_with("**/");
      pattern.remove_prefix(names ? 3 : 2);
      if (pattern.empty()) return true;
      for (std::size_t i = 0; i <= path.size(); ++i) {
        if (any && (!names || path[i - 1] == '/')) fit[i] = 1;
        any = any || fit[i];
      }
    } else if (pattern.front() == '*') {
      pattern.remove_prefix(1);
      for (std::size_t i = 0; i <= path.size(); ++i) {
        if (i > 0 && path[i - 1] == '/') any = false;
        any = any || fit[i];
        fit[i] = any;
      }
    } else {
      const char wanted = pattern.front();
      pattern.remove_prefix(1);
      for (std::size_t i = path.size(); i > 0; --i)
        fit[i] = fit[i - 1] && (wanted == '?' ? path[i - 1] != '/' : path[i - 1] == wanted);
      fit[0] = 0;
      if (std::find(fit.begin(), fit.end(), 1) == fit.end()) return false;
    }
  }
  return fit.back() != 0;
}

}  // namespace kiln::cli
