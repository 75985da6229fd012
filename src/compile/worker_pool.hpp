// Warm workers: spawned on the first miss, one request at a time each, at most `jobs` of them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compile/worker_process.hpp"

namespace kiln::compile {

class WorkerPool {
 public:
  /// `executable` as find_worker_executable takes it. Starts nothing.
  WorkerPool(std::string executable, int jobs);
  ~WorkerPool();

  /// Waits for a free worker, then for its answer; the deadline covers both. Without a worker executable it
  /// compiles in this process, with one warning, and the deadline cannot be kept. Throws Error(no_compiler)
  /// when a worker cannot be started.
  WorkerProcess::Answer run(const WorkerRequest& request, base::Deadline deadline);
  int jobs() const noexcept { return jobs_; }
  /// Starts one worker ahead of need, in the caller's time (posix_spawn takes about 0.4 ms). Faults wait for
  /// run().
  void warm() noexcept;

 private:
  std::unique_ptr<WorkerProcess> take(base::Deadline deadline);
  void give(std::unique_ptr<WorkerProcess> worker);

  std::string configured_;
  int jobs_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::unique_ptr<WorkerProcess>> idle_;
  int live_ = 0;
  pid_t host_ = ::getpid();
};

}  // namespace kiln::compile
