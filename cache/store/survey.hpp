// A survey lists every entry of a store with the time of its last use, which decides what is evicted first.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cache/store/file/pieces.hpp"
#include "cache/store/recent_uses.hpp"
#include "cache/store/results.hpp"

namespace kiln::cache {

struct Surveyed {
  static constexpr std::int64_t kNeverUsed = std::numeric_limits<std::int64_t>::min();
  Key key;
  std::int64_t tick = kNeverUsed;
  std::uint32_t pieces = 0;  ///< 0: a use without a record
};

/// The entries of the range, ordered by key, and then the uses without a record; `tick` is what the
/// tree says. Throws Damaged.
std::vector<Surveyed> survey(const PageFile& file, const KeyRange& range = kAllKeys);
/// The entries of the range, least recently used first; `tick` is the later one of the tree's and
/// the table's. Throws Damaged.
std::vector<Surveyed> survey_by_use(const PageFile& file, const RecentUses& recent,
                                    const KeyRange& range = kAllKeys);

}  // namespace kiln::cache
