// Decides which compile may start. The most urgent compile starts when this process has a free worker, the
// host a free slot and the machine enough memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "compile/pool/demand.hpp"
#include "compile/pool/machine.hpp"

namespace kiln::compile {

/// The host's compile slots: permissions to compile, shared by all processes of the host. A
/// waiting compile holds none.
class HostSlots {
 public:
  virtual ~HostSlots() = default;
  /// One compile's request for a slot.
  class Request {
   public:
    virtual ~Request() = default;
    /// Takes a slot, which is held until the result is destroyed; null when no slot is free now.
    virtual std::shared_ptr<void> try_take() = 0;
  };
  /// Thread-safe. One thread at a time may use the result.
  virtual std::unique_ptr<Request> request(Urgency urgency) = 0;
  /// Shows people that a compile has waited for its turn for a while, until the result is
  /// destroyed. May be null.
  virtual std::shared_ptr<void> show_waiting(const Demand&) noexcept { return nullptr; }
};

class Admission {
 public:
  struct Limits {
    int jobs = 1;              ///< compiles at once; see most_at_once()
    std::uint64_t memory = 0;  ///< bytes, of all compiles together; 0: what the machine has
    HostSlots* slots = nullptr;
    std::string machine_root{};  ///< see Machine
  };
  /// A permission to compile, held while the compile runs.
  class Pass {
   public:
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    /// Reports the compile's resident memory. Others wait when it is larger than the reservation.
    void grew_to(std::uint64_t bytes) noexcept { resident_ = bytes; }
    std::uint64_t resident() const noexcept { return resident_; }

   private:
    friend class Admission;
    Pass(Admission& owner, const Demand& demand, std::uint64_t reserved, std::shared_ptr<void> slot)
        : owner_(owner), urgency_(demand.now()), reserved_(reserved), slot_(std::move(slot)), node_{this} {}
    Admission& owner_;
    const Urgency urgency_;
    const std::uint64_t reserved_;
    std::atomic<std::uint64_t> resident_{0};
    std::shared_ptr<void> slot_;
    // One node, lent to the owner's list, so that nothing is allocated under the owner's mutex.
    std::list<const Pass*> node_;
  };

  /// Waits until the compile may start. Null when `give_up` passed or the admission was closed. When nothing
  /// runs, memory is not checked: a compile that cannot fit fails by itself, with a message. Stopped
  /// processes may hold slots, so a caller goes on without a slot after 10 s, and work ahead of need after a
  /// minute. Throws what the slots throw.
  std::unique_ptr<Pass> enter(const Limits& limits, const Demand& demand);
  /// Makes waiting compiles look again: an urgency was raised, or memory came back.
  void reconsider() noexcept;
  /// No compile may start any more, and waiting calls return null.
  void close() noexcept;
  bool closed() const noexcept { return closed_; }
  /// Records that a compile of `subject` took `peak` bytes at most.
  void learn(const std::string& subject, std::uint64_t peak);
  /// Memory that a compile may take, in bytes: the peak of earlier compiles of the subject, or the demand's
  /// own guess when there were none. Never less than `at_least`.
  std::uint64_t expected(const Demand& demand);
  /// True when memory is nearly exhausted. `resident` is the memory of all our workers,
  /// in bytes. Thread-safe.
  bool in_danger(const Limits& limits, std::uint64_t resident);
  const Machine& machine(const Limits& limits);

  /// Most compiles at once in a process with this many jobs. Callers may use a quarter more than work ahead
  /// of need, which therefore never takes all that callers can use.
  static int most_at_once(int jobs) noexcept { return jobs + std::max(1, jobs / 4); }
  int running() const;
  int waiting() const;

 private:
  struct Waiter {
    const Demand& demand;
  };
  class Waiting;
  const Waiter* first() const;
  bool worker_free(const Limits& limits, Urgency urgency) const;
  bool fits(const Limits& limits, const Demand& demand);
  std::uint64_t expected_locked(const Demand& demand) const;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::list<Waiter> waiting_;
  std::list<const Pass*> running_;
  std::map<std::string, std::uint64_t> learnt_;
  std::once_flag machine_once_;
  std::optional<Machine> machine_;
  std::uint64_t available_ = 0;  // as it was at available_at_
  base::Clock::time_point available_at_{};
  std::atomic<bool> closed_{false};
};

}  // namespace kiln::compile
