// The upkeep keeps track of when entries were used. It notes uses in memory and in the table of recent uses.
// A thread of its own writes them into the store in batches.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "cache/store/file/store_file.hpp"
#include "cache/store/recent_uses.hpp"
#include "cache/store/use_log.hpp"

namespace kiln::cache {

/// Returns whether the stored use of an entry is so old that a new one would be written. Throws Damaged.
bool use_is_due(const PageFile& pages, const Key& key);

/// The upkeep of one open store. Thread-safe. A forked child has no thread, and a state of its own.
class Upkeep : public std::enable_shared_from_this<Upkeep> {
 public:
  /// `interval` is the time between two rounds of the thread. The thread never lets the
  /// file grow beyond `cap_bytes`.
  Upkeep(std::shared_ptr<StoreFile> file, std::chrono::milliseconds interval, std::uint64_t cap_bytes)
      : file_(std::move(file)), interval_(interval), cap_bytes_(cap_bytes) {}

  /// Notes a use of an entry. `due` says whether the entry's stored use is due to be written again. The first
  /// use that is due, or the second of any kind, starts the thread. A process that takes one kernel, used
  /// within the hour, has nothing to keep up and pays for no thread.
  void note_use(const Key& key, bool due) noexcept;
  /// False for a store that is read-only, and for a second after the table of recent uses was found absent.
  bool may_note_recent() const noexcept;
  /// Notes a use in the table of recent uses, and returns whether there is one. An absent table is looked for
  /// again after a second.
  bool note_recent(const Moment& moment, const Key& key) noexcept;
  bool runs() noexcept { return own_.get().running.load(std::memory_order_relaxed); }
  /// Writes the uses noted so far that the store does not know yet.
  void write_uses(base::Deadline deadline) noexcept;
  /// Is called when the store is closed. Writes the uses that are left, and waits for this up to 200 ms.
  void stop() noexcept;

 private:
  /// The state of one process.
  struct Own {
    std::mutex mutex;
    std::condition_variable changed, leaving;
    std::atomic<bool> running{false};
    bool stop = false, left = false;  ///< left: the thread has nothing more to do than to end
    std::thread thread;
    const base::Clock::time_point since = base::Clock::now();  ///< not later than the first use
    UseLog uses;
  };
  void start() noexcept;
  void run(Own& own) noexcept;
  /// Notes uses of the entries that this process holds, because it takes them from its memory and no
  /// longer asks the store.
  void note_held() noexcept;

  const std::shared_ptr<StoreFile> file_;  // shared with the thread, which may outlive the store
  const std::chrono::milliseconds interval_;
  const std::uint64_t cap_bytes_;
  std::atomic<base::Clock::rep> no_recent_before_{0};  // when an absent table is looked for again
  base::PerProcess<Own> own_;
};

}  // namespace kiln::cache
