// What a tier consists of: the client, and for each process the leases with the thread that renews and asks
// for them, and the queue with the thread that writes. Private to tier*.cpp.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/process.hpp"
#include "cache/fleet/lease.hpp"
#include "cache/fleet/tier.hpp"

namespace kiln::fleet {

void count_miss(Counts& counts, Fault fault) noexcept;
void count_rejected(Counts& counts, Rejection reason) noexcept;

struct Tier::Impl : std::enable_shared_from_this<Tier::Impl> {
  Impl(TierOptions given, std::shared_ptr<Counts> counted);

  static Fetched read(Answer answer, const Asked& asked, std::span<const trust::PublicKey> believed);
  /// Once for each kind, what no waiting mends: "the fleet's tier at URL gives nothing to this node: DETAIL".
  void warn(Fault fault, const char* does, const std::string& detail) const;
  /// The key was looked for and is not there. `fault`: of the server, last.
  Reply lease(const Ask& ask, const Fetched& first, Fault& fault);
  void stop() noexcept;
  /// Waits for the threads as long as the destructor may.
  void leave() noexcept;

  TierOptions options;
  const std::shared_ptr<Counts> counts;
  Client client;
  LeasePolicy policy;  ///< with the options' budget

  /// Somebody who waits in `lease`.
  struct Asking {
    const Ask& ask;
    std::optional<Entry> entry;
    std::optional<LeaseDecision> decision;
    bool waits = false;      ///< for another node
    bool has_place = false;  ///< counted in `places`
    bool rejected = false;   ///< what the server has was not believed, and that is counted
    bool let_go = false;     ///< there was no memory to go on with it
  };
  struct Leasing {
    std::mutex mutex;  // guards what follows
    std::condition_variable work, decided;
    std::unique_ptr<Leases> leases;
    LeaseCounts counted;  ///< so far, in the tier's counts
    std::map<Key, Asking*> asking;
    std::set<Key> held;
    int places = 0;  ///< leases whose compile is under way, and asks for one
    Fault last_fault = Fault::none;
    bool stopped = false, closing = false, running = false;
    std::thread thread;
  };
  struct Push {
    Entry entry;
    About about;
    std::shared_ptr<HeldLease> lease;
    std::size_t bytes = 0;
  };
  struct Writing {
    std::mutex mutex;  // guards what follows
    std::condition_variable work, progress;
    std::deque<Push> waiting;
    std::size_t entries = 0, bytes = 0;          // with the one being written
    std::uint64_t handed_over = 0, settled = 0;  // in order: one thread
    std::set<std::string> reported;              // each row once in a process
    std::deque<std::string> rows;                // of these, what the server has not got yet
    std::size_t rows_untried = 0;                // at its end
    base::Clock::time_point again{};             // when the others are tried again
    Fault last_fault = Fault::none;
    std::string last_detail;
    bool closing = false, running = false;
    std::thread thread;
  };
  struct State {
    Leasing leasing;
    Writing writing;
  };
  base::PerProcess<State> state;  // a forked child has neither threads nor leases

  class Held;
  bool start_leasing(Leasing& leasing);
  void run_leases(Leasing& leasing) noexcept;
  /// REQUIRES: the mutex.
  void settle(Leasing& leasing);
  bool accept(Leasing& leasing, const Key& key, const std::string& value);
  void end(const Key& key) noexcept;
  void give_place_back() noexcept;

  bool hand_over(Push push, Full full) noexcept;
  /// REQUIRES: the mutex. Throws when there is no thread to be had.
  void start_writing(Writing& writing);
  void run_writes(Writing& writing) noexcept;
  void write(Push& push) noexcept;
  /// REQUIRES: the mutex, which is left and taken again.
  void write_rows(Writing& writing, std::unique_lock<std::mutex>& lock) noexcept;
};

}  // namespace kiln::fleet
