// Eviction makes room in a store that has reached its cap. There is no daemon: the writer that
// needs room makes it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/store/file/store_file.hpp"
#include "cache/store/results.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

struct EvictionOptions {
  std::uint64_t live_bytes = 0;  ///< evict until no more than this is live, of the whole file or of `range`
  std::uint64_t file_bytes = 0;  ///< the file must not grow beyond this meanwhile
  std::optional<KeyRange> range{};  ///< only these keys are counted and deleted
  /// Only these keys, which are sorted, are counted and deleted. REQUIRES: no range.
  std::optional<std::vector<Key>> keys{};

  bool is_of_all() const noexcept { return !range && !keys; }
};

/// Deletes the least recently used entries. Where all entries of a range or of `keys` go, the order of keys
/// decides. There are several transactions, so that no writer waits long, and the next transaction can reuse their
/// pages. Returns how many entries were deleted. They are fewer than needed when the gate could not be entered
/// before the deadline. Throws Damaged, LmdbError.
std::uint64_t evict(StoreFile& file, const EvictionOptions& options, base::Deadline deadline);

}  // namespace kiln::cache
