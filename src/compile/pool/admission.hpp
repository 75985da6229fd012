// Which compile may start: the most urgent one that waits, once this process has a worker for it, the host a
// slot and the machine the memory.
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

/// Leave to compile among all processes of the host. Nothing is held while waiting for it.
class HostSlots {
 public:
  virtual ~HostSlots() = default;
  class Asker {
   public:
    virtual ~Asker() = default;
    /// Held until destruction; null: none is free now.
    virtual std::shared_ptr<void> try_take() = 0;
  };
  /// Thread-safe; the asker is one thread's at a time.
  virtual std::unique_ptr<Asker> ask(Urgency urgency) = 0;
  /// To people who look, until destruction: one has waited for his turn for a while. May be null.
  virtual std::shared_ptr<void> show_waiting(const Demand&) noexcept { return nullptr; }
};

class Admission {
 public:
  struct Limits {
    int jobs = 1;              ///< callers at once; `ahead` ones leave them a quarter more
    std::uint64_t memory = 0;  ///< bytes, of all at once; 0: what the machine has
    HostSlots* slots = nullptr;
    std::string machine_root{};  ///< see Machine
  };
  /// Held while a compile runs.
  class Pass {
   public:
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    /// What it was found to take by now: others wait when it is more than was guessed.
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
    std::list<const Pass*> node_;  // one node, lent to the owner's list: nothing to allocate under its mutex
  };

  /// Waits for its turn. Null: `give_up` passed or the admission was closed. With nothing running the memory
  /// is not asked about: what cannot fit fails by itself, and says so. Slots may be held by processes that
  /// are stopped: after 10 s a caller goes on without one, after a minute everybody. Throws what the slots
  /// throw.
  std::unique_ptr<Pass> enter(const Limits& limits, const Demand& demand);
  /// Someone's urgency was raised, or memory came back.
  void reconsider() noexcept;
  /// Nobody enters any more; who waits leaves.
  void close() noexcept;
  bool closed() const noexcept { return closed_; }
  /// That a compile of this subject took so much at its peak.
  void learn(const std::string& subject, std::uint64_t peak);
  /// Of a demand: learnt, else as it says.
  std::uint64_t expected(const Demand& demand);
  /// Memory is as good as gone: `resident` bytes are our workers'. Thread-safe.
  bool in_danger(const Limits& limits, std::uint64_t resident);
  const Machine& machine(const Limits& limits);

  /// Of a process with so many jobs: work ahead of need never takes what a caller could use, so there is a
  /// quarter more for callers.
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

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::list<Waiter> waiting_;
  std::list<const Pass*> running_;
  std::map<std::string, std::uint64_t> learnt_;
  std::once_flag machine_once_;
  std::optional<Machine> machine_;
  std::uint64_t available_ = 0;  // of a while ago
  base::Clock::time_point available_at_{};
  std::atomic<bool> closed_{false};
};

}  // namespace kiln::compile
