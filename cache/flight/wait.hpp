// One wait for a flight lock. It polls the lock, reads the board meanwhile, and shows itself to people as a
// waiter. Private to flight.cpp.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <cstdio>

#include "base/log.hpp"
#include "cache/flight/flight.hpp"

namespace kiln::cache {

struct FlightFile::Candidate {
  Candidate(std::string lock, std::string board_path, std::uint64_t salt)
      : path(std::move(lock)),
        locks(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK),
        board(std::move(board_path), salt),
        waiters(board) {}
  std::string path;
  FdPool locks;
  Board board;
  Waiters waiters;
};

/// One caller's wait for one key. It remembers what the board said at its start, and decides
/// whether to go on.
class FlightFile::Wait {
 public:
  Wait(const Key& key, Candidate& candidate, base::Deadline deadline, const std::atomic<bool>* cancelled,
       const std::function<void()>& on_wait, std::string_view subject)
      : key_(key),
        subject_(subject),
        candidate_(candidate),
        deadline_(deadline),
        cancelled_(cancelled),
        on_wait_(on_wait),
        at_arrival_(candidate.board.read(key)) {}

  /// Polls until the byte is locked. Returns nothing when the wait ended first; `end()` then says why.
  std::optional<RangeLock> lock(int fd, std::int64_t offset) {
    std::optional<RangeLock> got;
    base::poll_until(deadline_, [&] {
      got = RangeLock::acquire(fd, offset, RangeLock::Mode::exclusive,
                               base::Deadline::after(base::Clock::duration::zero()));
      if (got) {
        end_ = End::taken;
        return true;
      }
      if (!waited_ && on_wait_) on_wait_();
      waited_ = true;
      return decided();
    });
    return got;
  }
  /// Returns whether a flight failed with a message for this waiter. The flight must have been under way when
  /// the wait began, or have begun later.
  bool failed() {
    auto now = candidate_.board.read(key_);
    return now && failed(*now);
  }

  End end() const noexcept { return end_; }
  bool waited() const noexcept { return waited_; }
  std::string error() { return std::move(error_); }

 private:
  static constexpr auto kSilence = std::chrono::seconds(2);           // before a warning names the holder
  static constexpr auto kShownAfter = std::chrono::milliseconds(20);  // before people are shown the waiter
  static constexpr std::uint32_t kEndingsSeen =
      2;  // holders in a row without a record, after which nobody waits any more

  bool decided() {
    end_ = End::timed_out;
    if (cancelled_ && cancelled_->load(std::memory_order_relaxed)) return end_ = End::cancelled, true;
    const auto now = candidate_.board.read(key_);
    if (now && failed(*now)) return true;
    if (now && now->endings_without_record() >= kEndingsSeen) return end_ = End::left, true;
    const auto waited = base::Clock::now() - since_;
    if (!asked_to_show_ && waited >= kShownAfter) {
      asked_to_show_ = true;
      shown_ = candidate_.waiters.show(WaitFor::flight, key_, subject_, since_boot_ms_);
    }
    if (!said_ && waited >= kSilence) say(now);
    return false;
  }

  bool failed(const BoardEntry& now) {
    if (now.state != FlightState::failed || now.error.empty()) return false;
    if (at_arrival_) {
      const bool was_on = at_arrival_->state == FlightState::compiling;
      if (now.flight < at_arrival_->flight || (now.flight == at_arrival_->flight && !was_on)) return false;
    } else if (!waited_) {
      return false;
    }
    error_ = now.error;
    end_ = End::failed;
    return true;
  }

  void say(const std::optional<BoardEntry>& now) {
    said_ = true;
    std::string whom = "another process that compiles " + key_.hex();
    if (now && now->state == FlightState::compiling) {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.0f", now->seconds_since_start());
      whom = now->who() + ", which has been compiling " + now->subject + " for " + seconds + " s (key " +
             key_.hex() + ")";
    }
    base::warn("still waiting after 2 s for " + whom + "; lock " + candidate_.path);
  }

  const Key key_;
  const std::string_view subject_;
  Candidate& candidate_;
  const base::Deadline deadline_;
  const std::atomic<bool>* cancelled_;
  const std::function<void()>& on_wait_;
  const std::optional<BoardEntry> at_arrival_;
  const base::Clock::time_point since_ = base::Clock::now();
  const std::int64_t since_boot_ms_ = boot_us() / 1000;
  bool waited_ = false, said_ = false, asked_to_show_ = false;
  std::unique_ptr<ShownWaiter> shown_;
  End end_ = End::timed_out;
  std::string error_;
};

}  // namespace kiln::cache
