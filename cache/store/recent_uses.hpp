// The table of recent uses says when entries were read, for the writer that evicts.
// Without this table recency would count in hours, since the tree takes note of a use at
// most once an hour (cache/store/upkeep.cpp).
//
// DIR/v1/recent holds 4,096 buckets of 8 uses of 8 bytes. A hash of the entry's key and the data file's inode
// chooses the bucket. A use holds the other half of that hash, which is the entry's tag, and the low 32 bits
// of the last transaction that a reader of the entry saw. Transactions are the store's clock (Use::tick): no
// wall clock can make an entry immortal. A data file that replaces another counts its transactions from 1, so
// the process that replaces it empties the table. A reader that is late writes the tag of the old inode,
// which means nothing to the new file.
//
// A reader reads the bucket and overwrites its entry's use, or the oldest one. It takes no lock, so of two
// readers that choose the same use at once, one is not noted. Wrong contents of the table can only change
// what is evicted first.
// Writers make the table, which is not counted in the cap, when the store is three quarters full. Before that
// nothing is evicted, and a reader pays only for finding no table.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "cache/store/file/store_file.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

/// Makes the table unless it exists. A failure is not reported: eviction then knows less.
void create_recent_uses(const StoreFile& file) noexcept;
/// Empties the table if there is one. REQUIRES: the gate's W is held.
void forget_recent_uses(const StoreFile& file) noexcept;

/// The data file that a reader saw, and its newest transaction.
struct Moment {
  ino_t data_file = 0;
  std::uint64_t transaction = 0;
};
Moment moment_of(const PageFile& pages) noexcept;

/// Notes that `key` was read at a moment. Returns false when there is no table; a disk fault
/// is not reported. Thread-safe.
bool note_recent_use(StoreFile& file, const Moment& moment, const Key& key) noexcept;

/// A copy of the table, to look up the uses of one data file.
class RecentUses {
 public:
  /// The copy is empty when the table is absent or cannot be read. A time after `now` is not believed.
  RecentUses(const StoreFile& file, const Moment& now);
  /// Returns the later of `tick`, which the tree says, and the key's time in the table.
  std::int64_t later(const Key& key, std::int64_t tick) const noexcept;

 private:
  std::vector<std::uint64_t> uses_;
  Moment now_;
};

}  // namespace kiln::cache
