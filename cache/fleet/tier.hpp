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

/// The right to compile a key for the fleet. Renewed until it is destroyed, which gives it back; a killed
/// process's ends by itself. A forked child's copy does nothing.
class HeldLease {
 public:
  virtual ~HeldLease() = default;
  /// The compile is over, and the rest is the server's matter: others of this process may take theirs.
  virtual void compiled() noexcept = 0;
};

class Tier {
 public:
  /// On the backend that the options' URL names. Touches no network and starts no thread.
  Tier(TierOptions options, std::shared_ptr<Counts> counts);
  /// On a backend of the caller's. Of the options' URL only the name for people is used.
  Tier(TierOptions options, std::shared_ptr<Backend> backend, std::shared_ptr<Counts> counts);
  /// Waits a while for what is to be written.
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  /// Whether what is compiled here goes to the fleet.
  bool writes() const noexcept;
  /// Whether it can be written at all, by a command that was told to.
  bool can_write() const noexcept;
  const TierUrl& url() const noexcept;

  struct Ask {
    Key key;
    std::string_view key_text;
    /// May the entry serve? One that may not counts as damaged. Called on whichever thread, the asking one
    /// waiting; must not throw but for memory. Null: yes.
    std::function<bool(const PublishedRecord&)> acceptable;
    bool may_compile = true;  ///< take a lease, or wait for who has it, when there is no entry
    bool in_a_hurry = true;   ///< somebody waits; others stand back while this process holds `most_leases`
    int most_leases = 1;
    const std::atomic<bool>* cancelled = nullptr;  ///< ends a wait once true, at the next stop()
    std::function<void()> on_wait;  ///< called once, on the asking thread, when another node compiles it
  };
  struct Reply {
    std::optional<PublishedRecord> entry;
    std::shared_ptr<HeldLease> lease;  ///< with no entry: compile for the fleet; null: for oneself
    bool absent = false;               ///< the server said that it has none
    bool waited = false;
  };
  /// Thread-safe, as everything here. Never throws.
  Reply ask(const Ask& ask) noexcept;

  /// What became of one key.
  struct Fetched {
    std::optional<PublishedRecord> entry;
    Fault fault = Fault::none;           ///< of the server; `detail` for people
    std::optional<Rejection> rejection;  ///< there, and not believed
    std::string detail;
  };
  /// Many in few round trips; for commands. Counted by nobody. `believed`: the keys whose entries count.
  std::vector<Fetched> fetch(const std::vector<Asked>& asked, base::Deadline deadline,
                             std::span<const trust::PublicKey> believed) noexcept;
  std::vector<Fetched> fetch(const std::vector<Asked>& asked, base::Deadline deadline) noexcept {
    return fetch(asked, deadline, trusted());
  }
  /// Of entries that are there: whether a row that one of `believed` signed tells it to hosts of other
  /// toolchains. True when the server does not say. For commands.
  std::vector<bool> are_listed(const std::vector<Key>& keys, base::Deadline deadline,
                               std::span<const trust::PublicKey> believed) noexcept;
  struct Find {
    Digest specialisation;
    std::string_view text;  ///< its section, with which the entry's key text begins
    std::function<bool(const Key&)> wanted;
    std::function<bool(const PublishedRecord&)> acceptable;
  };
  /// Of another toolchain: the first that is wanted and acceptable among those whose signed rows say that
  /// they serve others, newest NVRTC first, then youngest.
  std::optional<PublishedRecord> find(const Find& find) noexcept;

  /// What a signed row tells hosts of other toolchains about an entry.
  struct About {
    std::int64_t created_s = 0;
    bool serves_others = false;
    std::string compiler_version;
  };
  /// What happens when the queue is full.
  enum class Full { drop, wait };
  /// On its way to the server; the lease is held until it is there or dropped. False: dropped.
  bool publish(PublishedRecord entry, About about, std::shared_ptr<HeldLease> lease, Full full) noexcept;
  /// Tells the prewarm job of a row that nobody had. Each row once in a process; dropped when the queue is
  /// full.
  void report_missing(std::string row) noexcept;
  /// Until everything that was handed over is there or dropped. False when the deadline passed first.
  bool flush(base::Deadline deadline) noexcept;
  /// Ends waits for other nodes; from now on nobody waits.
  void stop() noexcept;

  /// What was written, and what kept something from being written last.
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
