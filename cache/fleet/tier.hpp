// The fleet's tier, step 4 of the path. It serves what other nodes have compiled, after verifying it. It
// takes the lease that makes one node compile for all, and sends what this node compiled to the others. It
// stands on a backend (cache/fleet/backend.hpp), which moves the bytes.
//
// No fault of a server is an exception or a wait beyond the backend's timeouts: it is a miss with a reason.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "cache/fleet/counts.hpp"
#include "cache/fleet/envelope.hpp"
#include "cache/fleet/tier_context.hpp"

namespace kiln::fleet {

/// The right to compile a key for the fleet. It is renewed until its destruction, which gives it back. The
/// lease of a killed process ends by itself. The copy in a forked child does nothing.
class HeldLease {
 public:
  virtual ~HeldLease() = default;
  /// Says that the compile is over and only the server has to take the entry. Other compiles of this process
  /// may then take leases.
  virtual void compiled() noexcept = 0;
};

class Tier {
 public:
  /// Uses the backend that the options' URL names. Touches no network and starts no thread.
  Tier(TierOptions options, std::shared_ptr<Counts> counts);
  /// Uses the caller's backend. Only the name for people is taken from the options' URL.
  Tier(TierOptions options, std::shared_ptr<Backend> backend, std::shared_ptr<Counts> counts);
  /// Waits for queued entries to be written, as long as the options' `patience` says.
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  /// Returns whether this node sends what it compiles to the fleet.
  bool writes() const noexcept;
  /// Returns whether entries can be written at all, by a command that was told to.
  bool can_write() const noexcept;
  const TierUrl& url() const noexcept;

  struct Ask {
    Key key;
    std::string_view key_text;
    /// Returns whether the entry may serve. An entry that may not counts as damaged. Called on any thread,
    /// while the asking one waits; must not throw but for memory. Null accepts every entry.
    std::function<bool(const PublishedRecord&)> acceptable;
    bool may_compile = true;  ///< without an entry: take a lease, or wait for its holder
    bool in_a_hurry = true;   ///< a caller waits; other work stands back at `most_leases`
    int most_leases = 1;
    /// Ends a wait for another node, beside the tier's own budget. A holder is seen, and a free lease taken, also when
    /// it has passed.
    base::Deadline deadline = base::Deadline::never();
    /// Asked about every 100 ms of a wait for another node, on the asking thread. True ends the wait. May be null.
    std::function<bool()> interrupted = nullptr;
    const std::atomic<bool>* cancelled = nullptr;  ///< once true, ends a wait at the next stop()
    std::function<void()> on_wait;  ///< called once, on the asking thread, when another node compiles it
  };
  struct Reply {
    std::optional<PublishedRecord> entry;
    std::shared_ptr<HeldLease> lease;  ///< without an entry: compile for the fleet; null: for oneself
    bool absent = false;               ///< the server said that it has none
    bool waited = false;
  };
  /// Thread-safe, as everything here. Never throws.
  Reply ask(const Ask& ask) noexcept;

  /// The result for one key.
  struct Fetched {
    std::optional<PublishedRecord> entry;
    Fault fault = Fault::none;           ///< the server's fault; `detail` is for people
    std::optional<Rejection> rejection;  ///< the entry was there and not believed
    std::string detail;
  };
  /// Fetches many entries in few round trips, for commands. Nothing is counted. Only entries that a key in
  /// `believed` signed are accepted.
  std::vector<Fetched> fetch(const std::vector<Asked>& asked, base::Deadline deadline,
                             std::span<const trust::PublicKey> believed) noexcept;
  std::vector<Fetched> fetch(const std::vector<Asked>& asked, base::Deadline deadline) noexcept {
    return fetch(asked, deadline, trusted());
  }
  /// Returns for each existing entry whether hosts of other toolchains can learn of it from a row that one of
  /// `believed` signed. True when the server does not say. For commands.
  std::vector<bool> are_listed(const std::vector<Key>& keys, base::Deadline deadline,
                               std::span<const trust::PublicKey> believed) noexcept;
  struct Find {
    Digest specialisation;
    std::string_view text;  ///< the specialisation's section, with which the entry's key text begins
    std::function<bool(const Key&)> wanted;
    std::function<bool(const PublishedRecord&)> acceptable;
  };
  /// Returns an entry of another toolchain: the first that is wanted and acceptable. It tries the entries
  /// whose signed rows say that they serve others, newest NVRTC first, then youngest.
  std::optional<PublishedRecord> find(const Find& find) noexcept;

  /// The facts that a signed row tells hosts of other toolchains about an entry.
  struct About {
    std::int64_t created_s = 0;
    bool serves_others = false;
    std::string compiler_version;
  };
  /// The behaviour when the queue is full.
  enum class Full { drop, wait };
  /// Queues an entry for the server. The lease is held until the entry is written or dropped. Returns false
  /// when the entry was dropped at once.
  bool publish(PublishedRecord entry, About about, std::shared_ptr<HeldLease> lease, Full full) noexcept;
  /// Tells the prewarm job of a row that nobody had, once in a process for each row. The row is dropped when
  /// the queue is full.
  void report_missing(std::string row) noexcept;
  /// Waits until everything that was queued is written or dropped. Returns false when
  /// the deadline passed first.
  bool flush(base::Deadline deadline) noexcept;
  /// Ends waits for other nodes. From now on no caller waits.
  void stop() noexcept;

  /// The number of written entries, and the last fault that kept an entry from being written.
  struct Totals {
    std::uint64_t puts = 0;
    Fault last_fault = Fault::none;
    std::string last_detail;
  };
  Totals totals();
  Backend& backend() noexcept;
  std::span<const trust::PublicKey> trusted() const noexcept;
  const trust::SigningKey* signer() const noexcept;

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace kiln::fleet
