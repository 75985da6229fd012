// What differs between two key texts, field by field: for why and diff.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "output.hpp"

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

/// Where a reader finds the two sides, and which versions their NVRTCs are, when that is known.
struct Sides {
  std::string one = "in the first", other = "in the second";
  std::string one_nvrtc{}, other_nvrtc{};
  /// Of the other side: "\"b.h\"", as its files spell what they include and what is found nowhere.
  std::vector<std::string> other_missing{};
};
/// An include of the one side that the other one still has, and whose file is not there any more.
bool is_missing(const KeyDifference& difference, const Sides& sides);
/// "kiln/dtype.cuh has changed", "H is 4096 in the first and 8192 in the second"
std::string sentence(const KeyDifference& difference, const Sides& sides);

/// Without the digests and build-ids that nobody reads whole: at most ten toolkit headers by name.
std::vector<std::string> sentences(const std::vector<KeyDifference>& differences, const Sides& sides);

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
