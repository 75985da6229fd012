// Every entry of a store with what decides who is evicted first.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cache/pieces.hpp"

namespace kiln::cache {

struct Surveyed {
  static constexpr std::int64_t kNeverUsed = std::numeric_limits<std::int64_t>::min();
  Key key;
  std::int64_t tick = kNeverUsed;
  std::uint32_t pieces = 0;  ///< 0: a use without a record
};

/// All entries, ordered by key. Throws Damaged.
std::vector<Surveyed> survey(const PageFile& file);

}  // namespace kiln::cache
