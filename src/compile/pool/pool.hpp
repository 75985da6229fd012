// Warm workers: spawned on the first miss, one request at a time each, gone when idle.
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
  std::string executable{};    ///< as find_worker_executable takes it
  int jobs = 0;                ///< compiles at once; 0: as many as the machine has cores for us
  std::uint64_t memory = 0;    ///< bytes of all workers together; 0: what the machine has
  HostSlots* slots = nullptr;  ///< must outlive the pool
  double cpu_seconds = 0;      ///< see WorkerSettings
  base::Clock::duration idle = std::chrono::seconds(60);  ///< after which an unused worker leaves
  std::function<void()> on_empty{};  ///< the last idle worker has left; on a thread of the pool
  std::string machine_root{};        ///< see Machine
};

/// Thread-safe. A forked child starts with an empty pool of its own.
class WorkerPool {
 public:
  /// Starts nothing and reads nothing.
  explicit WorkerPool(PoolSettings settings);
  /// Ends what runs, and every worker.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Waits for its turn, then for a worker's answer. A worker that was killed for want of memory while others
  /// ran is tried once more, with room for what it took. Without a worker executable it compiles in this
  /// process, with one warning, and the limit of time cannot be kept. Throws Error(no_compiler) when a worker
  /// cannot be started.
  WorkerProcess::Answer run(const WorkerRequest& request, const Demand& demand);
  /// A demand's urgency was raised.
  void reconsider() noexcept;
  /// Starts a worker that opens the compiler, ahead of the first request, unless there is one. Takes the
  /// caller what posix_spawn takes (0.4 ms); faults wait for run().
  void warm(const toolchain::CompilerLibraries& compiler) noexcept;
  /// Kills what runs; `run` answers `cancelled` from now on.
  void stop() noexcept;

  /// Compiles at once.
  int jobs() { return settings_.jobs > 0 ? settings_.jobs : cores(); }
  /// That the machine lets this process use.
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
