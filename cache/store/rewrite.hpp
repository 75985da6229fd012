// A rewrite copies a store's intact records into a fresh file and puts that file in place of the old one. gc,
// clear and the healing of a damaged file are rewrites.
#pragma once

#include <cstdint>
#include <limits>

#include "cache/store/file/write_transaction.hpp"
#include "cache/store/report.hpp"

namespace kiln::cache {

struct RewriteOptions {
  /// Bytes to keep at most, of the most recently used entries.
  std::uint64_t live_bytes = std::numeric_limits<std::uint64_t>::max();
  bool set_aside = false;   ///< keep the old file under damaged_name()
  bool keep_aside = false;  ///< leave a file that was set aside before
};

/// Copies every intact entry into a fresh file, syncs it, and puts it in place of the old file. A process
/// that has the old file open finds the path's inode changed and follows. Meanwhile puts wait (or are
/// skipped) and reads go on. Throws Error(io), LmdbError (no space for the copy).
Rewritten rewrite(StoreFile& file, WriteTransaction& writing, const RewriteOptions& options);

}  // namespace kiln::cache
