// The state that the handles of one space of blobs share: counts, the budget, leases and the queue. The thread
// that stores queued blobs needs it, too, so it may outlive the handles.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "cache/store/store.hpp"
#include "kiln/digest.hpp"
#include "runtime/blob/counters.hpp"
#include "runtime/state/stores.hpp"

namespace kiln::runtime {

/// True when the record is in the store after this put.
inline bool in_store(cache::Put put) noexcept {
  return put == cache::Put::stored || put == cache::Put::present;
}

/// Thread-safe.
class SpaceState {
 public:
  /// `budget` is the bytes that the space may have in the store.
  SpaceState(std::string space, std::uint64_t budget);
  /// Saves the counts.
  ~SpaceState();
  SpaceState(const SpaceState&) = delete;
  SpaceState& operator=(const SpaceState&) = delete;

  /// Counts the put of one record. Then keeps the budget, and deletes the parts of a blob that was replaced.
  void written(cache::Store& store, const cache::PutResult& result, std::uint64_t bytes) noexcept;
  /// Counts the put of one blob, whose last record ended so.
  void ended(cache::Put put) noexcept;

  bool is_queued(const Key& blob);
  bool has_queued();
  void queue(const Key& blob);
  void unqueue(const Key& blob) noexcept;

  /// Notes the digest of a blob that this process has read or stored.
  void use(const std::string& key, const Digest& content);
  /// Puts another digest in the place of that one, if there is one.
  void identify(const std::string& key, const Digest& identity);
  std::map<std::string, Digest> used();
  /// In the order of blob_counters().
  using Values = std::array<std::uint64_t, cache::kTallyValues>;
  /// The counts of this process alone. A forked child begins at zero.
  Values own_counts();
  /// True when this thread has the lease of the blob.
  bool is_mine(const Key& blob);

  /// Every call of a space begins with it: it notes where a forked child began to count, and saves the counts
  /// of this process once in a while.
  void begin_call(Stores& stores) noexcept;
  /// The counts of this process are saved in the store in `directory`.
  void count_in(const std::string& directory);
  /// Adds the counts of this process that are not saved yet to the space's tally in the writable store.
  void save(Stores& stores) noexcept;

  BlobCounts counts;  ///< a forked child goes on from the counts of its parent

 private:
  friend std::shared_ptr<void> mark_mine(const std::shared_ptr<SpaceState>& state, const Key& key);
  struct Own {
    std::mutex mutex;                     // guards what follows
    std::map<Key, std::thread::id> mine;  // leases, and the threads that have them
    std::map<Key, int> queued;            // blobs whose puts have not ended
    std::map<std::string, Digest> used;   // contents by key
    bool counting = false;                // in a forked child: `inherited` is set
    Values inherited{};                   // what its parent had counted before the fork
    Values saved{};
    std::unique_ptr<cache::Tally> tally;
  };

  Values values() const noexcept;
  static void save(Own& own, const Values& now) noexcept;
  void keep_budget(cache::Store& store, std::uint64_t written) noexcept;
  void drop_parts(cache::Store& store, const std::string& replaced) noexcept;

  const std::string space_;
  const std::uint64_t budget_;
  const std::uint64_t generation_ = base::process_generation();
  std::atomic<std::uint64_t> unseen_bytes_{0};  // written since the budget was last looked at
  std::atomic<bool> looked_{false};
  std::atomic<base::Clock::time_point> due_{};  // when the counts are saved again
  base::PerProcess<Own> own_;
};

/// Marks the blob's lease as this thread's until the result is destroyed. Null when a thread has it already.
std::shared_ptr<void> mark_mine(const std::shared_ptr<SpaceState>& state, const Key& key);

}  // namespace kiln::runtime
