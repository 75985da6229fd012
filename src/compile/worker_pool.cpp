#include "compile/worker_pool.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/log.hpp"
#include "compile/nvrtc_program.hpp"

namespace kiln::compile {

WorkerPool::WorkerPool(std::string executable, int jobs)
    : configured_(std::move(executable)), jobs_(std::max(1, jobs)) {}

WorkerPool::~WorkerPool() = default;

std::unique_ptr<WorkerProcess> WorkerPool::take(base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (host_ != ::getpid()) {  // a forked child: the workers are its parent's, and stay so
    idle_.clear();
    live_ = 0;
    host_ = ::getpid();
  }
  const auto ready = [&] { return !idle_.empty() || live_ < jobs_; };
  if (deadline.at() == base::Clock::time_point::max())
    freed_.wait(lock, ready);
  else if (!freed_.wait_until(lock, deadline.at(), ready))
    return nullptr;
  while (!idle_.empty()) {
    auto worker = std::move(idle_.back());
    idle_.pop_back();
    if (worker->alive()) return worker;
    --live_;  // killed while idle (an operator, the OOM killer): says nothing about the next request
  }
  ++live_;
  lock.unlock();
  try {
    return WorkerProcess::spawn(find_worker_executable(configured_));
  } catch (...) {
    give(nullptr);
    throw;
  }
}

/// Null: the worker is gone, and another may be started in its place.
void WorkerPool::give(std::unique_ptr<WorkerProcess> worker) {
  {
    std::lock_guard lock(mutex_);
    if (worker)
      idle_.push_back(std::move(worker));
    else
      --live_;
  }
  freed_.notify_one();
}

void WorkerPool::warm() noexcept try {
  if (find_worker_executable(configured_).empty()) return;
  if (auto worker = take(base::Deadline::after(base::Clock::duration::zero()))) give(std::move(worker));
} catch (...) {
}

WorkerProcess::Answer WorkerPool::run(const WorkerRequest& request, base::Deadline deadline) {
  using Fate = WorkerProcess::Answer::Fate;
  if (find_worker_executable(configured_).empty()) {
    base::warn_once(
        "no worker",
        "no kiln-worker executable found (looked beside the library, in libexec/kiln and beside the "
        "program); "
        "compiling inside this process, where a compiler crash cannot be contained. Set KILN_WORKER.");
    return {Fate::answered, run_nvrtc(request, WorkingDirectory::of_thread), {}};
  }
  auto worker = take(deadline);
  if (!worker) return {Fate::timed_out, {}, "no worker became free"};
  auto answer = worker->ask(request, deadline);
  if (answer.fate != Fate::answered) worker.reset();
  give(std::move(worker));
  return answer;
}

}  // namespace kiln::compile
