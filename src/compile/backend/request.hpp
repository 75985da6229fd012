// What a compiler is asked, and what it answers: the words of the seam between kiln and its compilers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/locate.hpp"

namespace kiln::compile {

/// Programs pretend to lie here: below a file nothing can exist, so no quoted include is ever found beside
/// the source.
inline constexpr const char* kProgramDirectory = "/dev/null/";

/// What a compile is to do with a precompiled header (compile/compiler/precompiled_header.hpp).
struct HeaderOrder {
  enum class Step : std::uint8_t { none, create, use };
  Step step = Step::none;
  std::string file;              ///< to use; the worker names what it creates
  std::uint64_t heap_bytes = 0;  ///< of the pinned heap: the same for every worker
  std::int32_t only_in = 0;      ///< pid of the only worker that may use it yet; 0: any
};

/// What became of it. In every case the rest of the response is what a compile without it gives.
struct HeaderOutcome {
  enum class End : std::uint8_t { none, created, used, refused, not_here };
  End end = End::none;
  std::string file;  ///< created: in the worker's own directory, for the host to take away
  std::string why;   ///< refused
};

struct WorkerRequest {
  toolchain::CompilerLibraries compiler;
  std::string program_name;  ///< "/dev/null/rms_norm.cu"
  std::string source;
  std::vector<std::pair<std::string, std::string>> roots;  ///< {".k0", absolute directory}, in search order
  /// [compile] replace: an include of the first name is one of <second>.
  std::vector<std::pair<std::string, std::string>> replace;
  std::string arch;                  ///< "sm_90a"
  std::vector<std::string> options;  ///< the manifest's, then kiln's
  std::string random_seed;
  std::vector<std::string> name_expressions;
  std::vector<std::string> linked;  ///< files and directories outside the roots that symlinks in them lead to
  bool trace_headers = false;       ///< report which files were read
  bool only_headers = false;        ///< with trace_headers: the source is read and nothing is compiled
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
  std::string message;  ///< for the last three
  std::string image, ptx, log;
  std::vector<std::string> lowered_names;
  std::vector<std::string> headers_read;  ///< as the compiler spells them
  std::string private_directory;          ///< where the compile ran: must not show up in the image
  std::string compiler_version;           ///< "13.0"
  double frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0, total_ms = 0;
  HeaderOutcome header;
  std::int32_t worker_pid = 0;
};

}  // namespace kiln::compile
