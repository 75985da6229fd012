// What goes over the socket between a compile worker and its host: one request, one response,
// length-prefixed, versioned, every length bounded. Both ends come from one build; a version that differs is
// refused, never guessed at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.hpp"

namespace kiln::compile {

inline constexpr std::uint32_t kProtocolVersion = 4;
/// Programs pretend to lie here: below a file nothing can exist, so no quoted include is ever found beside
/// the source.
inline constexpr const char* kProgramDirectory = "/dev/null/";
inline constexpr std::size_t kMaxFrame = std::size_t{1} << 30;

/// What a compile is to do with a precompiled header (compile/precompiled_header.hpp).
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
  std::string nvrtc, nvrtc_builtins;  ///< absolute paths
  std::string program_name;           ///< "/dev/null/rms_norm.cu"
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
  std::string nvrtc_version;              ///< "13.0"
  double frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0, total_ms = 0;
  HeaderOutcome header;
  std::int32_t worker_pid = 0;
};

std::string encode(const WorkerRequest& request);
std::string encode(const WorkerResponse& response);
/// Throw base::Malformed.
WorkerRequest decode_request(std::string_view bytes);
WorkerResponse decode_response(std::string_view bytes);

/// Frame: magic "kiln", u32 version, u64 length, bytes. A peer that does not read or write costs no more than
/// the deadline; once it has begun to answer it has a second more, for a receiver that was stopped meanwhile.
/// `peer`: the other side's pidfd. Its end counts as end of file, which does not come while somebody else,
/// such as a child forked at the wrong moment, has the socket; -1: end of file must do.
enum class Transfer { ok, closed, deadline, malformed };
Transfer send_frame(int fd, std::string_view bytes, base::Deadline deadline, int peer = -1);
Transfer receive_frame(int fd, std::string& bytes, base::Deadline deadline, int peer = -1);

}  // namespace kiln::compile
