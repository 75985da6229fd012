#include "runtime/state/background.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/no_signals.hpp"

namespace kiln::runtime {
namespace {
constexpr const char* kLeaving = "the service is being destroyed";
}  // namespace

void Background::run(Work work, Task task) {
  State& state = state_.get();
  bool nobody = false;
  {
    std::unique_lock lock(state.mutex);
    if (state.stopping) {
      lock.unlock();
      return task(kLeaving);
    }
    if (limit_ == 0) limit_ = std::clamp(ahead_limit_(), 1, kMostThreads / 2);
    auto& queue = work == Work::ahead ? state.ahead : state.urgent;
    const auto at = queue.insert(work == Work::load ? queue.begin() : queue.end(), std::move(task));
    const auto free = static_cast<std::size_t>(state.threads - state.busy);  // includes starting threads
    if (runnable(state) > free && (state.threads < kMostThreads || work == Work::load)) {
      try {
        const base::NoSignals inherited_by_the_thread;
        std::thread([this, &state] { serve(state); }).detach();
        ++state.threads;
      } catch (const std::exception&) {  // no thread could be started: an existing thread will do it
        nobody = state.threads == 0;
        if (nobody) {
          task = std::move(*at);
          queue.erase(at);
        }
      }
    }
    state.work.notify_one();
  }
  // The work is not done in the caller's thread, which may be capturing, in a hurry, or in no context.
  // NOLINTNEXTLINE(bugprone-use-after-move): it was taken back
  if (nobody) task("no thread could be started");
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
    const char* const why_not = state.stopping ? kLeaving : nullptr;
    lock.unlock();
    task(why_not);
    task = nullptr;  // what it holds is released before the lock is taken
    lock.lock();
    --state.busy, state.busy_ahead -= ahead;
    if (ahead) state.work.notify_one();
  }
  --state.threads;
  state.left.notify_all();  // under the lock: right after it, stop() may destroy the state
}

void Background::stop() noexcept {
  State& state = state_.get();
  std::unique_lock lock(state.mutex);
  state.stopping = true;
  std::deque<Task> dropped = std::move(state.urgent);
  for (Task& task : state.ahead) dropped.push_back(std::move(task));
  state.urgent.clear(), state.ahead.clear();
  lock.unlock();
  for (const Task& task : dropped) task(kLeaving);
  dropped.clear();
  lock.lock();
  state.work.notify_all();
  state.left.wait(lock, [&] { return state.threads == 0; });
}

}  // namespace kiln::runtime
