// The leases of one process: a thread drives the protocol (cache/fleet/lease.hpp) for all keys, and callers
// that ask for a lease wait for its decisions.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/process.hpp"
#include "cache/fleet/lease.hpp"
#include "cache/fleet/tier.hpp"

namespace kiln::fleet {

/// Thread-safe. Held by a shared_ptr, which its thread and the leases share. A forked child has neither the
/// thread nor the leases.
class LeaseThread : public std::enable_shared_from_this<LeaseThread> {
 public:
  explicit LeaseThread(std::shared_ptr<const TierContext> context);

  /// Waits for another node's compile, or takes the lease, of a key whose entry was looked for and is not
  /// there. `rejected`: the server's value was not believed, and that is counted. `fault` receives the
  /// server's last fault. Throws bad_alloc.
  Tier::Reply lease(const Tier::Ask& ask, bool rejected, Fault& fault);
  /// Ends all waits. From now on no caller waits.
  void stop() noexcept;
  /// Gives back the leases that no caller holds, and waits for the thread.
  void leave(base::Deadline deadline) noexcept;

 private:
  class Held;
  /// A caller that waits in `lease`.
  struct Asking {
    const Tier::Ask& ask;
    std::optional<PublishedRecord> entry;
    std::optional<LeaseDecision> decision;
    bool waits = false;       ///< for another node
    bool has_permit = false;  ///< counted in `permits`
    bool rejected = false;    ///< the server's value was not believed, and that is counted
    bool let_go = false;      ///< memory ran out, and the wait was given up
  };
  /// The state of one process.
  struct Own {
    std::mutex mutex;  // guards what follows
    std::condition_variable work, decided;
    std::unique_ptr<Leases> leases;
    LeaseCounts counted;  ///< what is in the tier's counts already
    std::map<Key, Asking*> asking;
    std::set<Key> held;
    int permits = 0;  ///< leases whose compile is under way, and callers that ask for one
    Fault last_fault = Fault::none;
    bool stopped = false, closing = false, running = false;
    std::thread thread;
  };
  bool start(Own& own);
  void run(Own& own) noexcept;
  /// REQUIRES: the mutex is held.
  void settle(Own& own);
  bool accept(Own& own, const Key& key, const std::string& value);
  void end(const Key& key) noexcept;
  void give_permit_back() noexcept;

  const std::shared_ptr<const TierContext> context_;
  LeasePolicy policy_;  ///< with the options' budget
  base::PerProcess<Own> own_;
};

}  // namespace kiln::fleet
