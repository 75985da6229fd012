// Sentences about the differences of two keys.
#pragma once

#include <string>
#include <vector>
#include "tools/kiln/store/key/difference.hpp"

namespace kiln::cli {

/// How sentences name the two sides, and the versions of their NVRTCs when known.
struct Sides {
  std::string one = "in the first", other = "in the second";
  std::string one_nvrtc{}, other_nvrtc{};
  /// Includes of the other side that are found nowhere, as its files spell them, such as "\"b.h\"".
  std::vector<std::string> other_missing{};
};
/// True for an include that the other side still has, but whose file is gone.
bool is_missing(const KeyDifference& difference, const Sides& sides);
/// "kiln/dtype.cuh has changed", "H is 4096 in the first and 8192 in the second"
std::string sentence(const KeyDifference& difference, const Sides& sides);
/// A sentence for each difference, without digests and whole build-ids. At most ten toolkit
/// headers are named.
std::vector<std::string> sentences(const std::vector<KeyDifference>& differences, const Sides& sides);

}  // namespace kiln::cli
