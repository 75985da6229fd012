// Warm workers: started at the first miss, used for one request at a time, ended when idle.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/process.hpp"
#include "compile/pool/admission.hpp"
#include "compile/pool/process.hpp"

namespace kiln::compile {

struct PoolSettings {
  std::string executable{};    ///< see find_worker_executable
  int jobs = 0;                ///< compiles at once; 0: one for each core that we may use
  std::uint64_t memory = 0;    ///< bytes, of all workers together; 0: what the machine has
  HostSlots* slots = nullptr;  ///< must outlive the pool
  double cpu_seconds = 0;      ///< see WorkerSettings
  base::Clock::duration idle = std::chrono::seconds(60);  ///< time until an unused worker is ended
  std::function<void()> on_empty{};  ///< called on a thread of the pool when the last idle worker has left
  std::string machine_root{};        ///< see Machine
};

/// Thread-safe. A forked child starts with an empty pool of its own.
class WorkerPool {
 public:
  /// Starts nothing and reads nothing.
  explicit WorkerPool(PoolSettings settings);
  /// Kills what runs, and every worker.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Waits until the compile may start, then for a worker's answer. A worker that was killed because memory
  /// ran out while others ran is tried once more, with more memory reserved. Without a worker executable the
  /// compile runs in this process, with one warning and without its time limit. Throws Error(no_compiler)
  /// when a worker cannot be started.
  WorkerProcess::Answer run(const WorkerRequest& request, const Demand& demand);
  /// Call this when the urgency of a waiting demand was raised.
  void reconsider() noexcept;
  /// Starts a worker that opens the compiler ahead of the first request, unless there is a worker. Takes as
  /// long as posix_spawn (0.4 ms). Faults are reported by run().
  void warm(const toolchain::CompilerLibraries& compiler) noexcept;
  /// Kills what runs. From then on run() answers `cancelled`.
  void stop() noexcept;

  /// Most compiles at once.
  int jobs() { return settings_.jobs > 0 ? settings_.jobs : cores(); }
  /// Cores that the machine lets this process use.
  int cores();

  struct View {
    int running = 0, waiting = 0, idle = 0;
    std::uint64_t spawned = 0, killed_for_memory = 0;
  };
  View view();

 private:
  struct State;
  using Answer = WorkerProcess::Answer;
  class Working;
  std::unique_ptr<WorkerProcess> take(const WorkerRequest& request);
  Answer run_once(const WorkerRequest& request, const Demand& demand, Admission::Pass& pass);
  void give(std::unique_ptr<WorkerProcess> worker) noexcept;
  void watch(State& state) noexcept;
  void ensure_watched(State& state);
  bool free_memory(State& state) noexcept;
  WorkerSettings settings_for(const toolchain::CompilerLibraries& compiler);
  Admission::Limits limits();

  PoolSettings settings_;
  base::PerProcess<State> state_;
};

}  // namespace kiln::compile
