// The seam behind which a compiler of CUDA C++ stands: what compiles, and what reads the log of it. NVRTC
// (nvrtc/) is the one that there is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compile/backend/request.hpp"

namespace kiln::compile {

/// Whose working directory may be changed. Only the worker's own: a host's other threads must not notice.
enum class WorkingDirectory { of_process, of_thread };

struct PtxasReport {
  std::uint32_t spill_store_bytes = 0, spill_load_bytes = 0;
  std::vector<std::string> performance_warnings;  ///< C75xx lines: success, and a kernel many times slower
};

/// Stateless. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Opens the compiler's libraries ahead of the first request. Throws Error(no_compiler).
  virtual void open(const toolchain::CompilerLibraries& libraries) const = 0;
  /// One compile. Blocks, on a thread of its own with a stack that deep nesting does not overflow. Never
  /// throws: faults are in the status.
  virtual WorkerResponse run(const WorkerRequest& request, WorkingDirectory whose) const noexcept = 0;

  // What is read in the log of a compile, also by a host that has no compiler.

  /// Of one kernel of a successful compile.
  virtual PtxasReport ptxas_report(std::string_view log, std::string_view lowered_name) const = 0;
  /// The log without the assembler's info lines: what a person wants to see.
  virtual std::string diagnostics(std::string_view log) const = 0;
  /// The compiler refuses to say which headers it read, since there is too much to say; the process that was
  /// told so must not compile again.
  virtual bool refuses_trace(const WorkerResponse& response) const noexcept = 0;
};

/// The compiler of this build of kiln. It lives as long as the process.
const Backend& backend() noexcept;

}  // namespace kiln::compile
