// Blobs of one space, for other JIT compilers of the process: bytes that kiln's stores, flights and tier keep
// beside the images of kernels (cache/blob/blob.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "cache/blob/blob.hpp"
#include "cache/fleet/tier.hpp"
#include "runtime/blob/space_state.hpp"
#include "runtime/path/core.hpp"

namespace kiln::runtime {

/// Bytes of the content that one entry of the tier has; a larger blob is several entries there. An entry has some
/// room beside it, for the key text and the facts.
inline constexpr std::uint64_t kTierPart = fleet::kMostEnvelope / 4 * 3;

/// How a space treats a miss in mode sealed, and after the seal. tell: it is counted, and named once in the log. refuse: it is
/// also an error. quiet: nothing; for commands, whose misses are answers.
enum class SealedMiss { tell, refuse, quiet };

struct BlobSpaceOptions {
  std::string space, compatibility;  ///< as in cache::BlobName
  /// Bytes of the store that the blobs of the space may take; the least recently used ones are deleted beyond
  /// that. 0: half of the store.
  std::uint64_t budget_bytes = 0;
  SealedMiss sealed_miss = SealedMiss::tell;
  /// True: a put returns once the blob is queued, and a thread of the service stores it.
  bool behind = false;
};

/// The right, and the duty, to make one blob: other callers with its key wait meanwhile. It ends when it is
/// destroyed or was given to a put. Used by one thread at a time. The copy in a forked child does nothing.
class BlobLease {
 public:
  BlobLease(std::shared_ptr<cache::Flight> host, std::shared_ptr<fleet::HeldLease> fleet,
            std::shared_ptr<void> mark)
      : mark_(std::move(mark)), host_(std::move(host)), fleet_(std::move(fleet)) {}

 private:
  friend class BlobSpace;
  std::shared_ptr<void> mark_;  // this thread's note that it has the lease
  std::shared_ptr<cache::Flight> host_;
  std::shared_ptr<fleet::HeldLease> fleet_;
};

/// Thread-safe. A fault of a store or a server is a miss or a skipped put, and never an error.
class BlobSpace {
 public:
  /// `core` must outlive it. `ended` ends waits once it is true. `sibling`, if there is one, is of the same space and
  /// compatibility, and shares counts and queue. Throws Error(invalid_argument) for texts that no blob can have.
  BlobSpace(Core& core, const BlobSpaceOptions& options, const std::atomic<bool>& ended,
            const BlobSpace* sibling = nullptr);
  /// Saves the counts.
  ~BlobSpace();
  BlobSpace(const BlobSpace&) = delete;
  BlobSpace& operator=(const BlobSpace&) = delete;

  using Found = std::optional<cache::Bytes>;
  /// The blob's bytes, from the layers, the writable store and the tier, in this order. Throws
  /// Error(not_ready) for a miss after the seal where the options say so.
  Found get(std::string_view key);
  enum class Put { stored, present, skipped, queued };
  /// Stores a blob, and replaces one with other bytes. The records are synced when this returns, unless the
  /// space stores behind its callers. Ends the lease, once the blob is stored. `why` receives the reason for
  /// `skipped`.
  Put put(std::string_view key, std::string_view content, std::unique_ptr<BlobLease> lease, std::string& why);

  struct Item {
    std::string key, content;
  };
  struct PutMany {
    std::uint64_t stored = 0, present = 0, skipped = 0;
    std::string why;  ///< the reason for `skipped`
  };
  /// Stores blobs, and replaces those with other bytes. About 16 MiB go into one transaction. They are not sent to
  /// the tier.
  PutMany put_many(const std::vector<Item>& items);

  struct Leased {
    Found found;
    std::unique_ptr<BlobLease> lease;  ///< null, without `found`: make the blob without a lease
  };
  /// The blob, or the lease to make it. Waits for another caller's lease, of this host or of the fleet, until
  /// the deadline; after that the caller makes the blob for itself. A thread that has the lease of this blob
  /// already does not wait for itself. `interrupted`, if given, is asked by this thread about every 100 ms of a wait,
  /// and ends the wait by returning true.
  Leased lease(std::string_view key, base::Deadline deadline, const std::function<bool()>& interrupted = {});

  struct Listed {
    std::string key, compatibility;
    std::uint64_t size = 0, stored_bytes = 0, last_used_s = 0, uses = 0;
    std::string directory;
  };
  /// Waits until the blobs that were queued are stored or skipped, and saves the counts. False when the deadline
  /// passed first.
  bool flush(base::Deadline deadline);
  /// All blobs of the space in the layers and the writable store, whatever their compatibility. A blob is listed only
  /// if its parts are there. Throws Error(io).
  std::vector<Listed> list();
  /// Deletes the blob of this compatibility from the writable store. False when it was not there. Throws Error.
  bool erase(std::string_view key);

  /// The fingerprint has this text of a blob that this process has used, in place of its bytes, until its next use.
  void identify(std::string_view key, std::string_view identity);
  /// Adds the digests of the blobs that this process has read or stored, by key and compatibility.
  void describe_used(std::map<std::string, std::set<std::string>>& out) const;

  const std::string& space() const noexcept { return options_.space; }
  const std::string& compatibility() const noexcept { return options_.compatibility; }
  const BlobCounts& counts() const noexcept;
  /// As SpaceState::own_counts().
  SpaceState::Values own_counts() const { return shared_->own_counts(); }

 private:
  enum class From { caller, tier };
  cache::BlobName name_of(std::string_view key) const;
  Found find(const cache::BlobKey& made);
  Found read(const cache::BlobKey& made);
  Found read_from(cache::Store& store, const cache::BlobKey& made);
  /// The wait for the maker of a blob on another node, and what comes of it.
  struct FleetWait {
    base::Deadline deadline;
    const std::function<bool()>& interrupted;
    std::shared_ptr<fleet::HeldLease> lease{};  ///< set when this process shall make the blob for the fleet
    bool in_vain = false;                       ///< it ended without a blob and without a lease
  };
  std::optional<cache::Record> ask_tier_once(const cache::BlobKey& made, FleetWait* wait);
  Found ask_tier(const cache::BlobKey& made, FleetWait* wait);
  Found missed(std::string_view key);
  Put store(const cache::BlobName& name, std::string_view content, std::shared_ptr<cache::Flight> flight,
            const Publication::Afterwards& afterwards, From from, std::string& why);
  void queue(Publication record, const Key& blob, bool last, From from);
  Publication::Afterwards publication_of(const cache::BlobName& name, std::string_view content,
                                         const std::shared_ptr<fleet::HeldLease>& lease);

  Core& core_;
  const BlobSpaceOptions options_;
  const std::shared_ptr<SpaceState> shared_;
  const std::atomic<bool>& ended_;
};

/// The spaces of a service, each opened once with the same options. Thread-safe. A forked child has the spaces that
/// its parent had opened.
class BlobSpaces {
 public:
  explicit BlobSpaces(Core& core) : core_(core) {}
  ~BlobSpaces();
  BlobSpaces(const BlobSpaces&) = delete;
  BlobSpaces& operator=(const BlobSpaces&) = delete;
  /// The space with these options. The first call for a space and compatibility decides on its budget.
  BlobSpace& open(const BlobSpaceOptions& options);
  /// All spaces that were opened, each once.
  std::vector<BlobSpace*> all() const;
  /// Ends the waits for leases of other callers, now and later: they make their blobs for themselves.
  void end_waits() noexcept { ended_ = true; }

 private:
  using Name = std::tuple<std::string, std::string, SealedMiss, bool>;
  struct Opened;

  Core& core_;
  base::PerProcess<std::mutex> opening_;  // held by open() alone
  /// The newest of the opened spaces. The list only grows, by one pointer, so that a forked child may read it.
  std::atomic<const Opened*> opened_{nullptr};
  std::atomic<bool> ended_{false};
};

}  // namespace kiln::runtime
