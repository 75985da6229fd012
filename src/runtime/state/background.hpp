// Threads for work that no caller's thread does: get_async, prefetch, prepare, loads with a deadline.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "base/process.hpp"
#include "compile/pool/demand.hpp"

namespace kiln::runtime {

/// Threads start on demand, and end after a second without work. Work ahead of need takes at most
/// `ahead_limit` of them, so that callers' work always finds a thread. Thread-safe. A forked child starts
/// with no threads and no work; the parent's work stays with the parent.
class Background {
 public:
  /// A load is for a caller that waits with a deadline, so it goes first. It may start a thread beyond the
  /// usual limit, because all threads may be waiting for compiles.
  enum class Work { load, caller, ahead };
  /// Called once: with null to do the work, or with the reason why the work will not be done. Must not throw.
  using Task = std::function<void(const char* why_not)>;

  explicit Background(std::function<int()> ahead_limit) : ahead_limit_(std::move(ahead_limit)) {}
  ~Background() { stop(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void run(Work work, Task task);
  /// Cancels tasks that have not begun, and waits for the rest. No task does its work afterwards.
  void stop() noexcept;

 private:
  struct State {
    std::mutex mutex;  // guards what follows
    std::condition_variable work, left;
    std::deque<Task> urgent, ahead;
    int threads = 0, busy = 0, busy_ahead = 0;
    bool stopping = false;
  };
  bool ahead_may_run(const State& state) const { return state.busy_ahead < limit_; }
  /// Tasks that could run now if there were threads for them.
  std::size_t runnable(const State& state) const {
    const auto room = static_cast<std::size_t>(std::max(0, limit_ - state.busy_ahead));
    return state.urgent.size() + std::min(state.ahead.size(), room);
  }
  void serve(State& state) noexcept;

  static constexpr int kMostThreads = 256;
  const std::function<int()> ahead_limit_;
  int limit_ = 0;  // result of ahead_limit_; 0: not asked yet. Guarded by the state's mutex
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
