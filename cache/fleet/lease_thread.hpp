// The leases of one process: a thread drives the protocol (cache/fleet/lease.hpp) for all keys, and those who
// ask for a lease wait for what it decides.
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

  /// The key was looked for and is not there: waits for another node's compile, or takes the lease.
  /// `rejected`: what the server has was not believed, and that is counted. `fault` receives the server's
  /// last fault. Throws bad_alloc.
  Tier::Reply lease(const Tier::Ask& ask, bool rejected, Fault& fault);
  /// Ends all waits; from now on nobody waits.
  void stop() noexcept;
  /// Gives the leases back that nobody holds, and waits for the thread.
  void leave(base::Deadline deadline) noexcept;

 private:
  class Held;
  /// Somebody who waits in `lease`.
  struct Asking {
    const Tier::Ask& ask;
    std::optional<PublishedRecord> entry;
    std::optional<LeaseDecision> decision;
    bool waits = false;       ///< for another node
    bool has_permit = false;  ///< counted in `permits`
    bool rejected = false;    ///< what the server has was not believed, and that is counted
    bool let_go = false;      ///< there was no memory to go on with it
  };
  /// Of one process.
  struct Own {
    std::mutex mutex;  // guards what follows
    std::condition_variable work, decided;
    std::unique_ptr<Leases> leases;
    LeaseCounts counted;  ///< so far, in the tier's counts
    std::map<Key, Asking*> asking;
    std::set<Key> held;
    int permits = 0;  ///< leases whose compile is under way, and asks for one
    Fault last_fault = Fault::none;
    bool stopped = false, closing = false, running = false;
    std::thread thread;
  };
  bool start(Own& own);
  void run(Own& own) noexcept;
  /// REQUIRES: the mutex.
  void settle(Own& own);
  bool accept(Own& own, const Key& key, const std::string& value);
  void end(const Key& key) noexcept;
  void give_permit_back() noexcept;

  const std::shared_ptr<const TierContext> context_;
  LeasePolicy policy_;  ///< with the options' budget
  base::PerProcess<Own> own_;
};

}  // namespace kiln::fleet
