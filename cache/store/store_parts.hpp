// What store*.cpp share. Private to them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/process.hpp"
#include "cache/store/file/pieces.hpp"
#include "cache/store/file/store_file.hpp"
#include "cache/store/file/write_transaction.hpp"
#include "cache/store/recent_uses.hpp"
#include "cache/store/store.hpp"
#include "cache/store/use_log.hpp"

namespace kiln::cache {

/// Whether the stored use of an entry is so old that it would be written anew. Throws Damaged.
bool use_is_due(const PageFile& pages, const Key& key);

/// Of an entry that is published now.
Use fresh_use(std::int64_t tick) noexcept;

inline constexpr std::uint64_t kTreeSlack = 8 << 20;  ///< of map, for the tree's pages that a put copies
inline constexpr std::uint64_t kTreePagesPerPut = 64;
inline constexpr std::uint64_t kPagesCheckedAtFirst = 1024;

struct Store::Impl : std::enable_shared_from_this<Store::Impl> {
  explicit Impl(const StoreOptions& o) : options(o), file(o.directory, o.access == Access::read_write) {}

  // Reading (store.cpp). `body(pages)` runs inside the gate.
  Entered reading(base::Deadline deadline, std::string& why,
                  const std::function<void(const PageFile&)>& body);
  /// As `reading`; throws Error(io) as well when it could not enter. A `body` that throws Damaged runs once
  /// more (believe_second in store.cpp): it begins by forgetting what it had found.
  void reading_or_throw(base::Deadline deadline, const std::function<void(const PageFile&)>& body);
  /// With a key text it is a use of the entry, without it is a look.
  /// `due` (when given) receives whether the key's use would have to be written.
  GetResult get(const Key& key, const std::string_view* key_text, base::Deadline deadline,
                bool* due = nullptr);
  Peeked<RecordText> peek_text(const Key& key, base::Deadline deadline);
  /// Some entries of a listing, in one pass of the gate.
  struct Batch {
    std::vector<Entry> entries;
    std::uint64_t unreadable = 0;
    std::optional<Key> next;  ///< where the listing goes on
  };
  Batch read_batch(const Key& from, const Key& last);

  // Writing (store_write.cpp).
  PutResult put(const Key& key, const Record& record, std::chrono::milliseconds wait,
                Existing existing = Existing::kept);
  PutResult write(const Key& key, const Record& record, std::string_view encoded, Existing existing,
                  base::Deadline deadline);
  void put_record(Writing& writing, const PageFile& pages, const Key& key, std::string_view encoded,
                  base::Deadline deadline);
  /// Those of `records` that are not there, in one transaction; false when it takes more than that (room,
  /// healing, patience) and nothing was written.
  bool write_many(const std::vector<std::pair<Key, Record>>& records, std::vector<PutResult>& out);
  std::string heal(const std::string& why, ino_t seen, base::Deadline deadline);
  Entered enter_writing(base::Deadline deadline, std::optional<Writing>& out, std::string& why);
  Rewritten replace(std::uint64_t live_bytes, base::Deadline deadline);
  /// Leaves at most `live_bytes` live in a file of at most the cap; how many entries went for it. By eviction
  /// in the file where that suffices. A file that is larger than the cap, or too full for its own tree to be
  /// changed, is rewritten, as gc does. Where no second file can be made, the file keeps its size.
  /// Nothing when the file could not be entered for the rewrite; `entered` and `why` then say how that ended.
  /// Throws Damaged where the tree is damaged, and LmdbError.
  std::optional<std::uint64_t> make_room(std::uint64_t live_bytes, base::Deadline deadline, Entered& entered,
                                         std::string& why);
  std::uint64_t live_limit() const noexcept { return options.cap_bytes / 10 * 9; }
  /// Returns whether `live_bytes` are within the limit. From three quarters of the limit on, eviction is
  /// near: this makes the table in which readers note their uses (cache/store/recent_uses.hpp).
  bool fits(std::uint64_t live_bytes) noexcept;

  // Uses (store_uses.cpp).
  /// Of an entry whose use is `due` to be written. The first one that is due, or the second of any kind,
  /// starts the upkeep: a process that takes one kernel, used within the hour, has nothing to keep up and
  /// pays for no thread.
  void note_use(const Key& key, bool due) noexcept;
  /// What this process holds is in use: it takes these entries from its memory and asks the store no more.
  void note_held() noexcept;
  bool may_note_recent() const noexcept;
  /// Returns whether there is a table to note it in; one that is absent is looked for again after a second.
  bool note_recent(const Moment& moment, const Key& key) noexcept;
  bool upkeep_runs() noexcept { return upkeep.get().running.load(std::memory_order_relaxed); }
  void start_upkeep() noexcept;
  void write_uses(base::Deadline deadline) noexcept;
  void stop_upkeep() noexcept;

  /// The thread that keeps the store up while it is open. A forked child has none, and its own state.
  struct Upkeep {
    std::mutex mutex;
    std::condition_variable changed, leaving;
    std::atomic<bool> running{false};
    bool stop = false, left = false;  ///< left: the thread does nothing any more but to end
    std::thread thread;
    const base::Clock::time_point since = base::Clock::now();  ///< not later than the first use
    UseLog uses;
  };
  static void keep_up(Impl& impl, Upkeep& upkeep) noexcept;

  const StoreOptions options;
  StoreFile file;
  std::string identity;
  std::atomic<bool> tree_checked{false};  // by a put of this process
  std::atomic<bool> swept{false};         // what killed processes left, by a writer of this process
  std::atomic<bool> recent_made{false};   // the table of recent uses, by a put of this process
  std::atomic<base::Clock::rep> no_recent_before{0};  // when the table that was absent is looked for again
  std::atomic<base::Clock::rep> no_heal_before{0};
  base::PerProcess<Upkeep> upkeep;
};

}  // namespace kiln::cache
