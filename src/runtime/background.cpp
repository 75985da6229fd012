#include "runtime/background.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/no_signals.hpp"

namespace kiln::runtime {

using compile::Urgency;

void Background::run(Urgency urgency, Task task) {
  State& state = state_.get();
  bool alone = false;
  {
    std::unique_lock lock(state.mutex);
    if (state.stopping) {
      lock.unlock();
      return task(true);
    }
    if (limit_ == 0) limit_ = std::clamp(ahead_limit_(), 1, kMostThreads / 2);
    auto& queue = urgency == Urgency::caller ? state.urgent : state.ahead;
    queue.push_back(std::move(task));
    const auto free = static_cast<std::size_t>(state.threads - state.busy);  // also those just starting
    if (runnable(state) > free && state.threads < kMostThreads) {
      try {
        const base::NoSignals inherited_by_the_thread;
        std::thread([this, &state] { serve(state); }).detach();
        ++state.threads;
      } catch (const std::exception&) {  // no thread to be had: those that are there will come to it, or we
        alone = state.threads == 0;
        if (alone) {
          task = std::move(queue.back());
          queue.pop_back();
        }
      }
    }
    state.work.notify_one();
  }
  if (alone) task(false);
}

void Background::serve(State& state) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-behind");
  std::unique_lock lock(state.mutex);
  for (;;) {
    const auto something = [&] {
      return !state.urgent.empty() || (!state.ahead.empty() && ahead_may_run(state));
    };
    if (!something()) {
      if (state.stopping) break;
      if (!state.work.wait_for(lock, std::chrono::seconds(1), [&] { return something() || state.stopping; }))
        break;
      continue;
    }
    const bool ahead = state.urgent.empty();
    auto& queue = ahead ? state.ahead : state.urgent;
    Task task = std::move(queue.front());
    queue.pop_front();
    ++state.busy, state.busy_ahead += ahead;
    const bool cancelled = state.stopping;
    lock.unlock();
    task(cancelled);
    task = nullptr;  // what it holds goes before we lock
    lock.lock();
    --state.busy, state.busy_ahead -= ahead;
    if (ahead) state.work.notify_one();
  }
  --state.threads;
  state.left.notify_all();  // under the lock: the state may be gone right after it
}

void Background::stop() noexcept {
  if (generation_ != base::process_generation()) return;  // a forked child has none of the threads
  State& state = state_.get();
  std::unique_lock lock(state.mutex);
  state.stopping = true;
  std::deque<Task> dropped = std::move(state.urgent);
  for (Task& task : state.ahead) dropped.push_back(std::move(task));
  state.urgent.clear(), state.ahead.clear();
  lock.unlock();
  for (const Task& task : dropped) task(true);
  dropped.clear();
  lock.lock();
  state.work.notify_all();
  state.left.wait(lock, [&] { return state.threads == 0; });
}

}  // namespace kiln::runtime
