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
inline constexpr Key kLastKey = [] {
  Key key;
  for (auto& byte : key.specialisation.bytes) byte = 0xff;
  for (auto& byte : key.toolchain.bytes) byte = 0xff;
  return key;
}();
/// For the gate, of a put behind one that did not land: those behind must not wait as long in a row.
inline constexpr std::chrono::milliseconds kWaitBehindOneInVain{50};
inline constexpr std::uint64_t kNoCap = std::uint64_t{1} << 46;  ///< more than any file

class Store {
 public:
  /// Opens or creates. Throws Error(io) that names directory, reason and what to do; the caller decides what
  /// a cache without a store means. A read-only store that has no file yet also throws. A file
  /// without a valid meta page throws Damaged (cache/store/file/pages.hpp) when read-only; else damage is no
  /// error: reads are misses, and the next put heals the file.
  static std::shared_ptr<Store> open(const StoreOptions& options);
  /// Waits for what it knows of uses to be written, if that does not take long.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// The record of exactly this key whose key text is exactly `key_text`. Never throws; a fault is a miss.
  GetResult get(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept;
  /// Every intact record of a specialisation, whatever the toolchain.
  std::vector<Record> find(const Digest& specialisation, base::Deadline deadline) noexcept;
  /// One record by key alone (inspection, no use of it). Never throws; a fault is a miss.
  Peeked<Record> peek(const Key& key, base::Deadline deadline) noexcept;
  /// The same without reading the image. The facts are verified; the key text is not, as its checksum goes
  /// over the image as well: whoever made the key can tell.
  Peeked<RecordText> peek_text(const Key& key, base::Deadline deadline) noexcept;
  /// One transaction, synced. Replaces a damaged record or one with another key text, makes room by eviction,
  /// and heals a damaged file first: its intact records move to a fresh file, the old one is kept as
  /// data.mdb.damaged until the next gc. Never throws.
  PutResult put(const Record& record) noexcept { return put(record, put_wait()); }
  /// As `put`, with another wait for the gate, and for what is no image.
  PutResult put(const Record& record, std::chrono::milliseconds wait,
                Existing existing = Existing::kept) noexcept;
  /// Many at once, in any order: in one transaction with one sync when nothing is in the way (room to be
  /// made, damage, a key that comes twice), else one after the other; a result for each, in the order given.
  /// Meant for records of some 16 MiB together: the gate is held while they are written. Never throws.
  std::vector<PutResult> put_many(const std::vector<Record>& records) noexcept;
  std::chrono::milliseconds put_wait() const noexcept;
  /// Calls `each` for every entry with an intact head, ordered by key, from a snapshot that is copied out in
  /// batches (the gate is not held while `each` runs). Throws Error(io) when the store cannot be read,
  /// Damaged (cache/store/file/pages.hpp) when its file is damaged.
  Listed list(const std::function<void(const Entry&)>& each) { return list({}, kLastKey, each); }
  /// Of the keys from `first` to `last`, both included; the rest of the tree is not read.
  Listed list(const Key& first, const Key& last, const std::function<void(const Entry&)>& each);
  StoreStats stats();
  /// Checks all pages and records beside live engines. Throws Error(io) when nothing can be read.
  Verified verify(const std::function<void(std::uint64_t)>& progress = {});
  /// Rewrites the file with at most `max_bytes` of entries, the most recently used ones, and without free
  /// pages, damage or leftovers of killed processes. Waits for other writers until the deadline. Throws
  /// Error(io).
  Rewritten gc(std::uint64_t max_bytes, base::Deadline deadline);
  /// Replaces the file by an empty one. As gc.
  Rewritten clear(base::Deadline deadline);
  /// Writes the uses noted so far that the store does not know yet. Never throws.
  void write_uses(base::Deadline deadline) noexcept;

  const std::string& directory() const noexcept;
  /// For lock names: equal in all processes that see the same store. That of DIR/v1, which stays when the
  /// file in it is replaced (gc, clear).
  std::string identity() const;
  bool writable() const noexcept;

 private:
  struct Impl;
  explicit Store(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kiln::cache
