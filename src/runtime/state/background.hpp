// Threads for what no caller's thread does: get_async, prefetch, prepare, loads with a deadline.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "base/process.hpp"
#include "compile/pool/demand.hpp"

namespace kiln::runtime {

/// Threads come on demand and leave after a second without work. Work ahead of need takes at most
/// `ahead_limit` of them, so that callers' work always finds one. Thread-safe; a forked child starts with
/// none, and its parent's work stays the parent's.
class Background {
 public:
  /// A load is for a caller who waits with a deadline: it goes first, and finds a thread also when all are
  /// taken by work that waits for compiles.
  enum class Work { load, caller, ahead };
  /// Called once: with null to do it, otherwise with the reason why it will not be done. Must not throw.
  using Task = std::function<void(const char* why_not)>;

  explicit Background(std::function<int()> ahead_limit) : ahead_limit_(std::move(ahead_limit)) {}
  ~Background() { stop(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void run(Work work, Task task);
  /// Cancels what has not begun and waits for the rest. Nothing is run afterwards.
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
  int limit_ = 0;  // ahead_limit_'s answer, once it was needed; guarded by the state's mutex
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
