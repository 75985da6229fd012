// Step 5 of the path: the compile itself, in a worker process.
#pragma once

#include <atomic>
#include <functional>

#include "cache/record/record.hpp"
#include "compile/compiler/compiler.hpp"
#include "runtime/path/host_slots.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {

/// Thread-safe.
class ImageCompiler {
 public:
  explicit ImageCompiler(ServiceState& state);

  /// Lets a worker open the compiler in the background, because it will be needed soon.
  void warm_up();
  /// Compiles in a worker. `record` becomes the record to publish. Files that changed while they were
  /// compiled make the image unpublishable. Throws CompileError and Error.
  Obtained compile(const Unit& unit, cache::Record& record, const std::atomic<compile::Urgency>& urgency);
  /// Compiles without store, flight or memory; for --emit ptx, kiln audit and benches. Throws
  /// Error(not_ready) without the permission to compile.
  compile::Compiled compile_alone(const source::Instantiation& unit, const Permission& permission,
                                  bool want_ptx, compile::Urgency urgency = compile::Urgency::caller);
  compile::WorkerPool& workers() noexcept { return workers_; }

 private:
  compile::Compiled call_worker(const Unit& unit, const std::atomic<compile::Urgency>& urgency,
                                const std::function<bool()>& same_files);

  ServiceState& state_;
  HostSlots slots_;
  compile::PrecompiledHeaders headers_;  // declared before the pool, which drops them
  compile::WorkerPool workers_;
};

}  // namespace kiln::runtime
