// What differs between two key texts, field by field: for why and diff.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

struct KeyDifference {
  /// The key text's label ("parameter", "include", "nvrtc", ...), or "order" where the same fields stand in
  /// another one.
  std::string field;
  std::string name;  ///< which of its kind: "H", "kiln/dtype.cuh"; empty where there is only one
  std::optional<std::string> one, other;  ///< nothing: that side has none
  std::string detail{};                   ///< for files: who includes it
};

/// Ordered by what explains most: parameters and arch, then sources, headers, options, toolchain; what only
/// follows from others (the name expression) comes last. Empty for equal texts only.
std::vector<KeyDifference> key_differences(std::string_view one, std::string_view other);

/// What decides which of two entries is nearer.
struct Distance {
  std::size_t asked = 0;  ///< of what a caller says: parameters (2 each) and arch (3)
  std::size_t made = 0;   ///< of what the key is made of besides
  friend bool operator<(const Distance& a, const Distance& b) noexcept {
    return a.asked != b.asked ? a.asked < b.asked : a.made < b.made;
  }
};
Distance distance_of(const std::vector<KeyDifference>& differences) noexcept;

}  // namespace kiln::cli
