// Requests to a compiler and its responses: the types that kiln and its compilers share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/locate.hpp"

namespace kiln::compile {

/// The directory that programs seem to lie in. Nothing can exist below a file, so a quoted include is never
/// found beside the source.
inline constexpr const char* kProgramDirectory = "/dev/null/";

/// The order to a compile about a precompiled header (compile/compiler/precompiled_header.hpp).
struct HeaderOrder {
  enum class Step : std::uint8_t { none, create, use };
  Step step = Step::none;
  std::string file;              ///< the file to use; a worker chooses the name of a file that it creates
  std::uint64_t heap_bytes = 0;  ///< size of the pinned heap: equal for all workers
  std::int32_t only_in = 0;      ///< pid of the only worker that may use it so far; 0: any worker
};

/// The result for the precompiled header. In every case the rest of the response is that of a
/// compile without the header.
struct HeaderOutcome {
  enum class End : std::uint8_t { none, created, used, refused, not_here };
  End end = End::none;
  std::string file;  ///< for `created`: in the worker's own directory; the host takes it away
  std::string why;   ///< for `refused`
};

struct WorkerRequest {
  toolchain::CompilerLibraries compiler;
  std::string program_name;  ///< "/dev/null/rms_norm.cu"
  std::string source;
  std::vector<std::pair<std::string, std::string>> roots;  ///< {".k0", absolute directory}, in search order
  /// From [compile] replace: an include of the first name becomes an include of <second>.
  std::vector<std::pair<std::string, std::string>> replace;
  /// `overlay` has the files that the compiler sees with another text than on disk, by symbolic name. `beside` has
  /// the other files of the same roots, with their paths or the symbolic name of an equal file in `overlay`. A root
  /// in one of the two lists has no files but these.
  std::vector<std::pair<std::string, std::string>> overlay, beside;
  std::string arch;                  ///< "sm_90a"
  std::vector<std::string> options;  ///< the manifest's, then kiln's
  std::string random_seed;
  std::vector<std::string> name_expressions;
  /// Files and directories outside the roots that symlinks inside the roots lead to.
  std::vector<std::string> linked;
  bool trace_headers = false;  ///< report which files were read
  bool only_headers = false;   ///< with trace_headers: only read the source, compile nothing
  bool want_ptx = false;
  HeaderOrder header;
};

struct WorkerResponse {
  enum class Status : std::uint8_t {
    ok,
    compile_failed,
    out_of_memory,
    unsupported_arch,
    no_compiler,
    failed
  };
  Status status = Status::failed;
  std::string message;  ///< for unsupported_arch, no_compiler and failed
  std::string image, ptx, log;
  std::vector<std::string> lowered_names;
  std::vector<std::string> headers_read;  ///< as the compiler spells them
  std::string private_directory;          ///< where the compile ran: the image must not contain this path
  std::string compiler_version;           ///< "13.0"
  double frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0, total_ms = 0;
  HeaderOutcome header;
  std::int32_t worker_pid = 0;
};

}  // namespace kiln::compile
