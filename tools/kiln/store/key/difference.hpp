// The differences of two key texts, field by field, for `kiln why` and the diff commands.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

struct KeyDifference {
  /// The key text's label ("parameter", "include", "nvrtc", ...). "order" when both texts have the same
  /// fields in different orders.
  std::string field;
  std::string name;  ///< tells fields of one label apart: "H", "kiln/dtype.cuh"; empty for a single field
  std::optional<std::string> one, other;  ///< nothing: that side has no such field
  std::string detail{};                   ///< for files: the file that includes it
};

/// Differences in the order of how much they explain: parameters and arch, then sources, headers,
/// options, toolchain. Fields that only follow from others (the name expression) come last. Empty only
/// for equal texts.
std::vector<KeyDifference> key_differences(std::string_view one, std::string_view other);

/// How far one entry is from another; the nearer one has the smaller distance.
struct Distance {
  std::size_t asked = 0;  ///< differences in what a caller asks for: 2 for a parameter, 3 for the arch
  std::size_t made = 0;   ///< differences in other fields of the key
  friend bool operator<(const Distance& a, const Distance& b) noexcept {
    return a.asked != b.asked ? a.asked < b.asked : a.made < b.made;
  }
};
Distance distance_of(const std::vector<KeyDifference>& differences) noexcept;

}  // namespace kiln::cli
