// The store: one LMDB file behind the gate, opened for reading and writing or for reading alone. Records are
// verified on every read. It stores bytes and knows no CUDA. It is thread-safe, and safe between processes
// and containers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "cache/store/report.hpp"
#include "cache/store/results.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

enum class Access { read_only, read_write };

struct StoreOptions {
  std::string directory;  ///< DIR; the file is DIR/v1/data.mdb. Created 0700 when writable
  Access access = Access::read_write;
  std::uint64_t cap_bytes = std::uint64_t{5} << 30;  ///< of the file; at least kSmallestCap
  std::chrono::milliseconds put_wait{2000};  ///< a put that cannot get the gate in this time is skipped
  std::chrono::milliseconds upkeep{60'000};  ///< how often uses are written and idle descriptors closed
};
inline constexpr std::uint64_t kSmallestCap = std::uint64_t{4} << 20;
/// The wait for the gate of a put that follows one that timed out, so that a row of puts does not wait the
/// whole time for each.
inline constexpr std::chrono::milliseconds kPutWaitAfterTimeout{50};
inline constexpr std::uint64_t kNoCap = std::uint64_t{1} << 46;  ///< larger than any file

class Store {
 public:
  /// Opens or creates a store. Throws Error(io) that names directory, reason and what to do; the caller
  /// decides what a cache without a store means. A read-only store also throws when it has no file yet. It
  /// throws Damaged (cache/store/file/pages.hpp) when the file has no valid meta page. In a writable store
  /// damage is no error: reads are misses, and the next put heals the file.
  static std::shared_ptr<Store> open(const StoreOptions& options);
  /// Writes the noted uses, and waits for this up to 200 ms.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// The record of exactly this key whose key text is exactly `key_text`. Never throws; a fault is a miss.
  GetResult get(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept;
  /// As get, without a copy of the image.
  GotBytes get_bytes(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept;
  /// Every intact record of a specialisation, whatever the toolchain. Never throws.
  std::vector<Record> find(const Digest& specialisation, base::Deadline deadline) noexcept;
  /// One record by key alone, for inspection: this is no use of it. Never throws; a fault is a miss.
  Peeked<Record> peek(const Key& key, base::Deadline deadline) noexcept;
  /// Works as `peek`, but does not read the image. The facts are verified. The key text is not, since its
  /// checksum covers the image as well; a caller that can make the key verifies it.
  Peeked<RecordText> peek_text(const Key& key, base::Deadline deadline) noexcept;
  /// Writes a record in one transaction, and syncs it. Replaces a damaged record, or one with another key
  /// text. Makes room by eviction. Heals a damaged file first: its intact records move to a fresh file, and
  /// the old file is kept as data.mdb.damaged until the next gc. Never throws.
  PutResult put(const Record& record) noexcept { return put(record, put_wait()); }
  /// Works as the other `put`, with another wait for the gate. `Existing::replaced` is for records
  /// that are no images.
  PutResult put(const Record& record, std::chrono::milliseconds wait,
                Existing existing = Existing::kept) noexcept;
  /// Puts many records, in any order. Returns a result for each, in the order given. They go into one
  /// transaction with one sync when nothing is in the way: room to be made, damage, a key that comes twice.
  /// Otherwise they are put one after the other. Meant for records of some 16 MiB together, since the gate is
  /// held while they are written. Never throws.
  std::vector<PutResult> put_many(const std::vector<Record>& records,
                                  Existing existing = Existing::kept) noexcept;
  std::chrono::milliseconds put_wait() const noexcept;
  /// Calls `each` for every entry with an intact head, ordered by key. The entries are copied out in batches,
  /// each from a snapshot of its own; the gate is not held while `each` runs. Throws Error(io) when the store
  /// cannot be read, Damaged (cache/store/file/pages.hpp) when its file is damaged.
  Listed list(const std::function<void(const Entry&)>& each) { return list({}, kLastKey, each); }
  /// Lists the keys from `first` to `last`, both included; the rest of the tree is not read.
  Listed list(const Key& first, const Key& last, const std::function<void(const Entry&)>& each);
  StoreStats stats();
  /// Checks all pages and records while engines use the store. Throws Error(io) when nothing can be read.
  Verified verify(const std::function<void(std::uint64_t)>& progress = {});
  /// Rewrites the file with at most `max_bytes` of entries, the most recently used ones, and without free
  /// pages, damage or leftovers of killed processes. Waits for other writers until the deadline. Throws
  /// Error(io).
  Rewritten gc(std::uint64_t max_bytes, base::Deadline deadline);
  /// Replaces the file by an empty one. Waits and throws as gc does.
  Rewritten clear(base::Deadline deadline);
  /// Deletes the least recently used entries among the keys of `range` until they have at most `max_bytes` in
  /// the file. Returns how many were deleted. They are fewer than needed when the gate could not be entered
  /// before the deadline. Throws Error(io); Damaged (cache/store/file/pages.hpp) when the file is damaged,
  /// which the next put heals.
  std::uint64_t trim(const KeyRange& range, std::uint64_t max_bytes, base::Deadline deadline);
  /// Deletes the entries of these keys, in as few transactions as one deletion allows. Returns how many there were;
  /// they are fewer when the gate could not be entered before the deadline. Throws as trim does.
  std::uint64_t remove(std::vector<Key> keys, base::Deadline deadline);
  /// Writes the uses noted so far that the store does not know yet. Never throws.
  void write_uses(base::Deadline deadline) noexcept;

  /// Bytes of the file on disk; 0 when that cannot be told.
  std::uint64_t file_bytes() const noexcept;
  const std::string& directory() const noexcept;
  /// A name for locks, equal in all processes that see the same store. It identifies DIR/v1, which stays when
  /// gc or clear replaces the file in it.
  std::string identity() const;
  bool writable() const noexcept;

 private:
  struct Impl;
  explicit Store(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kiln::cache
