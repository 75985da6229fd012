// The flight lock lets one process of this host compile a key at a time. It only saves work: correctness
// never depends on it.
//
// The lock is a zero-length file in /dev/shm named by uid and store identity, or `flight.lock` beside the
// store where /dev/shm cannot be used; never mapped, never unlinked by us: one byte per key (62 bits of it),
// OFD, polled. Containers may share the store and not /dev/shm, so the same byte is then also taken in
// data.mdb itself (the gate's bytes lie behind). Always in this order, within one deadline, and never while
// waiting for another key. A killed holder frees both at once (the kernel does), a stopped one is passed by
// at the deadline.
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

/// The lock file of one store. Shared by its flights, which may outlive whoever opened it. Thread-safe.
class FlightFile : public std::enable_shared_from_this<FlightFile> {
 public:
  /// Creates `shared_memory`/kiln-<uid>-<store identity>.flight (0600), or `store_place`/flight.lock when
  /// that cannot be: a directory that is absent or read-only, a file that is not a regular one of ours, a
  /// symlink. What is not ours is left alone. Throws Error(io) when neither works: then everybody compiles
  /// for himself.
  static std::shared_ptr<FlightFile> open(const FlightPlaces& places);
  ~FlightFile();
  FlightFile(const FlightFile&) = delete;
  FlightFile& operator=(const FlightFile&) = delete;

  enum class End {
    taken,
    timed_out,  ///< somebody still held it at the deadline
    left,       ///< two holders ended without a record: waiting in a row would serve nobody
    failed,     ///< the flight that was waited for failed, and `error` is what its holder said
    cancelled
  };
  struct Taken {
    End end = End::timed_out;
    std::shared_ptr<Flight> flight;  ///< not null when taken
    bool waited = false;             ///< somebody else held it: look in the store again
    std::string error;
  };
  /// After locking, the file's inode is compared with the path's, and the lock is taken again when it was
  /// replaced. A waiter says once, after 2 s, whom it waits for. `cancelled`, when given, ends the wait once
  /// true; `on_wait` is called once when somebody else holds it. One who has waited for 20 ms is shown as
  /// waiting, with `subject`, for people. Throws Error(io) when no lock file is usable any more.
  Taken take(const Key& key, base::Deadline deadline, const std::atomic<bool>* cancelled = nullptr,
             const std::function<void()>& on_wait = {}, std::string_view subject = {});

  /// The lock file that a flight would take now, or the first candidate when none is usable.
  std::string path();
  /// A descriptor of the lock file in use, for other ranges of it. Throws Error(io) when none is usable.
  FdPool::Lease lease();
  /// The boards of all candidates together.
  std::vector<BoardEntry> board();
  /// That this process waits for something else than a flight, until it is destroyed; null: cannot be shown.
  /// The file outlives it.
  std::unique_ptr<ShownWaiter> show_waiting(WaitFor wait_for, std::string_view subject,
                                            const Key& key = {}) noexcept;

 private:
  struct Candidate;
  class Wait;
  explicit FlightFile(const FlightPlaces& places);
  Taken take_at(Candidate& candidate, const Key& key, Wait& wait);
  bool take_in_data_file(std::int64_t offset, Wait& wait, Flight& flight);

  std::vector<std::unique_ptr<Candidate>> candidates_;
  std::unique_ptr<FdPool> data_file_;  // null: no store place
  std::string data_path_;
};

/// Held by who compiles a key, until the record is committed. One thread at a time. A forked child's copy
/// does nothing.
class Flight {
 public:
  explicit Flight(const Key& key) : key_(key), generation_(base::process_generation()) {}
  ~Flight();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// On the board from now on. `subject` is for people.
  void compiling(std::string_view subject) noexcept;
  /// How it ended, once; a flight that ends without a word ended without a record.
  void published() noexcept { ended(FlightState::published, {}); }
  void unpublished() noexcept { ended(FlightState::unpublished, {}); }
  /// The source's own fault: every process that waited for this flight gets `error`.
  void failed(std::string_view error) noexcept { ended(FlightState::failed, error); }
  /// Whether data.mdb's byte is held too.
  bool holds_data_file() const noexcept { return static_cast<bool>(data_fd_); }

 private:
  friend class FlightFile;
  void ended(FlightState state, std::string_view error) noexcept;

  const Key key_;
  const std::uint64_t generation_;
  std::shared_ptr<FlightFile> file_;  // first: the pools go last
  Board* board_ = nullptr;
  std::optional<BoardEntry> entry_;
  FdPool::Lease fd_;  // before its lock, which goes first
  RangeLock lock_;
  FdPool::Lease data_fd_;
  RangeLock data_lock_;
};

}  // namespace kiln::cache
