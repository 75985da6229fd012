// Verification reads a whole store to find out whether its bytes are the ones that were written.
#pragma once

#include <cstdint>
#include <functional>

#include "cache/store/file/store_file.hpp"
#include "cache/store/report.hpp"

namespace kiln::cache {

/// Checks the pages first, then every record, in batches that let engines work meanwhile. `progress` receives
/// the number of intact entries so far. Throws Error(io) when the store cannot be read at all.
Verified verify(StoreFile& file, const std::function<void(std::uint64_t)>& progress);

}  // namespace kiln::cache
