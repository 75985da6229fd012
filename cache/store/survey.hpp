// A survey lists every entry of a store with the time of its last use, which decides what is evicted first.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cache/store/file/pieces.hpp"
#include "cache/store/recent_uses.hpp"

namespace kiln::cache {

struct Surveyed {
  static constexpr std::int64_t kNeverUsed = std::numeric_limits<std::int64_t>::min();
  Key key;
  std::int64_t tick = kNeverUsed;
  std::uint32_t pieces = 0;  ///< 0: a use without a record
};

/// All entries, ordered by key, and then the uses without a record; `tick` is what the
/// tree says. Throws Damaged.
std::vector<Surveyed> survey(const PageFile& file);
/// All entries, least recently used first; `tick` is the later one of the tree's and
/// the table's. Throws Damaged.
std::vector<Surveyed> survey_by_use(const PageFile& file, const RecentUses& recent);

}  // namespace kiln::cache
