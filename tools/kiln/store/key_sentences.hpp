// How a difference of two keys is said.
#pragma once

#include <string>
#include <vector>
#include "tools/kiln/store/key_difference.hpp"

namespace kiln::cli {

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

}  // namespace kiln::cli
