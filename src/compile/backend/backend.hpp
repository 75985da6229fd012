// The interface between kiln and a compiler of CUDA C++: compiling, and reading the log of a compile. NVRTC
// (nvrtc/) is the only implementation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compile/backend/request.hpp"

namespace kiln::compile {

/// Whose working directory a compile may change. `of_process` is for the worker only: other threads of a
/// host must not notice.
enum class WorkingDirectory { of_process, of_thread };

struct PtxasReport {
  std::uint32_t spill_store_bytes = 0, spill_load_bytes = 0;
  /// C75xx lines: the compile succeeded, but the kernel may be many times slower.
  std::vector<std::string> performance_warnings;
};

/// Stateless. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Opens the compiler's libraries ahead of the first request. Throws Error(no_compiler).
  virtual void open(const toolchain::CompilerLibraries& libraries) const = 0;
  /// Does one compile. Blocks while a thread with a large stack compiles, so that deep nesting does not
  /// overflow the stack. Never throws: faults are in the status.
  virtual WorkerResponse run(const WorkerRequest& request, WorkingDirectory whose) const noexcept = 0;

  // The functions below read the log of a compile. A host without a compiler may call them, too.

  /// The assembler's report about one kernel of a successful compile.
  virtual PtxasReport ptxas_report(std::string_view log, std::string_view lowered_name) const = 0;
  /// The log without the assembler's info lines, as people want to see it.
  virtual std::string diagnostics(std::string_view log) const = 0;
  /// True when the compiler failed because the trace of the headers that it read was too large. The process
  /// that gave this response must not compile again.
  virtual bool refuses_trace(const WorkerResponse& response) const noexcept = 0;
};

/// The compiler of this build of kiln. It lives as long as the process.
const Backend& backend() noexcept;

}  // namespace kiln::compile
