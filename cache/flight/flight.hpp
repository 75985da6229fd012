// The flight lock lets one process of this host compile a key at a time. It only saves work: correctness
// never depends on it.
//
// The lock file is an empty file in /dev/shm, named by uid and store identity. Where /dev/shm cannot be used,
// it is `flight.lock` beside the store. kiln never maps it and never unlinks it. A key has one byte in it,
// chosen by 62 bits of its hash, and an OFD lock on this byte is polled for.
//
// Containers may share the store and not /dev/shm. So a flight then also locks the same byte in data.mdb
// itself; the bytes of the gate lie after the keys. The two locks are always taken in this order, within one
// deadline, and never while waiting for another key. The kernel frees both locks of a killed holder at once.
// A stopped holder is passed by at the deadline.
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
#include "cache/flight/board.hpp"
#include "cache/flight/waiters.hpp"
#include "cache/lock/fd_pool.hpp"
#include "cache/lock/gate.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

class Flight;

struct FlightPlaces {
  std::string store_identity;  ///< names the lock file: Store::identity()
  std::string store_place;     ///< DIR/v1; empty: no fallback and no lock in data.mdb
  std::string shared_memory = "/dev/shm";
};

/// A lock on one byte, with the descriptor that it belongs to.
struct LockedByte {
  FdPool::Lease fd;
  RangeLock lock;  // destroyed first
};

/// The lock file of one store. Its flights share it, and may outlive the owner that opened it. Thread-safe.
class FlightFile : public std::enable_shared_from_this<FlightFile> {
 public:
  /// Creates `shared_memory`/kiln-<uid>-<store identity>.flight (0600). Uses `store_place`/flight.lock
  /// instead where the directory is absent or read-only, or where the file is a symlink or no regular file of
  /// this user. Files of other users are left alone. Throws Error(io) when neither file works; every process
  /// then compiles for itself.
  static std::shared_ptr<FlightFile> open(const FlightPlaces& places);
  ~FlightFile();
  FlightFile(const FlightFile&) = delete;
  FlightFile& operator=(const FlightFile&) = delete;

  enum class End {
    taken,
    timed_out,  ///< another holder still had the lock at the deadline
    left,       ///< two holders in a row left no record: a queue of waiters would help nobody
    failed,     ///< the flight that was waited for failed; `error` is its holder's message
    cancelled
  };
  struct Taken {
    End end = End::timed_out;
    std::shared_ptr<Flight> flight;  ///< not null when taken
    bool waited = false;             ///< another holder had the lock: look in the store again
    std::string error;
  };
  /// Takes the lock of `key`, and waits for it until the deadline. After locking, the file's inode is
  /// compared with the path's; the lock is taken again when the file was replaced.
  ///  - `cancelled`, when given, ends the wait once it is true.
  ///  - `on_wait` is called once when another holder has the lock.
  ///  - After 20 ms the wait is shown to people, with `subject` (cache/flight/waiters.hpp).
  ///  - After 2 s a warning says once which process is waited for.
  /// Throws Error(io) when no lock file is usable any more.
  Taken take(const Key& key, base::Deadline deadline, const std::atomic<bool>* cancelled = nullptr,
             const std::function<void()>& on_wait = {}, std::string_view subject = {});

  /// The lock file that a flight would take now, or the first candidate when none is usable.
  std::string path();
  /// A descriptor of the lock file in use, for locks on its other bytes. Throws Error(io)
  /// when none is usable.
  FdPool::Lease lease();
  /// The entries on the boards of all candidates.
  std::vector<BoardEntry> board();
  /// Shows people that this process waits for something other than a flight, until the result is destroyed.
  /// Returns null when that is not possible. REQUIRES: this FlightFile outlives the result.
  std::unique_ptr<ShownWaiter> show_waiting(WaitFor wait_for, std::string_view subject,
                                            const Key& key = {}) noexcept;

 private:
  struct Candidate;
  class Wait;
  explicit FlightFile(const FlightPlaces& places);
  Taken take_at(Candidate& candidate, const Key& key, Wait& wait);
  template <typename Use>
  decltype(auto) first_usable(Use use);
  Candidate& usable();

  std::vector<std::unique_ptr<Candidate>> candidates_;
  std::unique_ptr<FdPool> data_file_;  // null: no store place
  std::string data_path_;
};

/// The lock on one key, held by a compile until its record is committed. Used by one thread at a time. The
/// copy in a forked child does nothing.
class Flight {
 public:
  explicit Flight(const Key& key) : key_(key), generation_(base::process_generation()) {}
  ~Flight();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// Puts the flight on the board. `subject` is for people.
  void compiling(std::string_view subject) noexcept;
  /// These report how the flight ended; one of them is called, once. A flight without a report
  /// ended without a record.
  void published() noexcept { ended(FlightState::published, {}); }
  void unpublished() noexcept { ended(FlightState::unpublished, {}); }
  /// The source itself is at fault: every process that waited for this flight gets `error`.
  void failed(std::string_view error) noexcept { ended(FlightState::failed, error); }
  /// Returns whether the byte in data.mdb is held, too.
  bool holds_data_file() const noexcept { return static_cast<bool>(data_.fd); }

 private:
  friend class FlightFile;
  void ended(FlightState state, std::string_view error) noexcept;

  const Key key_;
  const std::uint64_t generation_;
  std::shared_ptr<FlightFile> file_;  // declared first: the pools are destroyed last
  Board* board_ = nullptr;
  std::optional<BoardEntry> entry_;
  LockedByte own_;   // in the lock file
  LockedByte data_;  // in data.mdb: gc replaces that file, and the old one's space must not be kept
};

}  // namespace kiln::cache
