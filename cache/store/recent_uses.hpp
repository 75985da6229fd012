// When entries were read, for the writer that evicts. Without this table recency would count in hours, since
// the tree takes note of a use at most once an hour (cache/store/upkeep.cpp).
//
// DIR/v1/recent holds 4,096 buckets of 8 uses of 8 bytes. A hash of the entry's key and the data file's
// inode chooses the bucket. A use holds the other half of that hash, which is the entry's tag, and the low
// 32 bits of the last transaction that a reader of the entry saw. Transactions are the store's clock
// (Use::tick): no wall clock can make an entry immortal. A data file that replaces another counts its
// transactions from 1, so whoever replaces it empties the table. A reader that is late writes the tag of the
// old inode, which means nothing to the new file.
//
// A reader reads the bucket and overwrites its entry's use, or the oldest one. It takes no lock: of two
// that choose one use at once, one is not noted. Whatever lies in the table, it decides only what is
// evicted first.
// Writers make the table, which is not counted in the cap, when the store is three quarters full. Before that
// nothing is evicted, and a reader pays only for finding no table.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "cache/store/file/store_file.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

/// Makes the table unless it is there. A failure is not reported: eviction then knows less.
void create_recent_uses(const StoreFile& file) noexcept;
/// Empties the table if there is one. REQUIRES: the gate's W is held.
void forget_recent_uses(const StoreFile& file) noexcept;

/// Which data file a reader saw, and its newest transaction.
struct Moment {
  ino_t data_file = 0;
  std::uint64_t transaction = 0;
};
Moment moment_of(const PageFile& pages) noexcept;

/// Notes that `key` was read at a moment. False when there is no table; a fault of the disk is not reported.
/// Thread-safe.
bool note_recent_use(StoreFile& file, const Moment& moment, const Key& key) noexcept;

/// A copy of the table as it concerns one data file.
class RecentUses {
 public:
  /// Empty where the table is absent or cannot be read. A time after `now` is not believed.
  RecentUses(const StoreFile& file, const Moment& now);
  /// The later one of `tick`, which the tree says, and the time in the table.
  std::int64_t later(const Key& key, std::int64_t tick) const noexcept;

 private:
  std::vector<std::uint64_t> uses_;
  Moment now_;
};

}  // namespace kiln::cache
