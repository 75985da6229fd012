// Eviction makes room in a store that has reached its cap. There is no daemon: the writer who needs room
// makes it.
#pragma once

#include <cstdint>

#include "cache/store/file/store_file.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

struct EvictionOptions {
  std::uint64_t live_bytes = 0;  ///< evict until no more than this is live
  std::uint64_t file_bytes = 0;  ///< the file must not grow beyond it meanwhile
};

/// Deletes the least recently used entries, in several transactions so that no writer waits long, and leaves
/// their pages fit for the next transaction. Returns how many entries went; fewer than needed when the gate
/// cannot be had until the deadline. Throws Damaged, LmdbError.
std::uint64_t evict(StoreFile& file, const EvictionOptions& options, base::Deadline deadline);

}  // namespace kiln::cache
