// Precompiled headers of one host process: which exist, which compile creates one, and
// whether they are proven.
//
// NVRTC does not notice when a header has changed since. So a precompiled header is found only by a digest of
// everything that went into it, contents included.
//
// A worker makes the file. The host opens and unlinks it before any other process uses it. Workers open it as
// /proc/<host>/fd/<n>, so its name can never lead to another file, and nothing is left when the host dies.
//
//   absent -> seen -> creating -> unproven -> proving -> proven
//                        |           ^-----------|          every fault on the way: off, for this process
//
// The first compile of a name is only noted: it does not take longer for compiles that may never come. No
// compile waits for another: one that finds `creating` or `proving` goes on without a header.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/process.hpp"
#include "compile/backend/request.hpp"
#include "kiln/digest.hpp"

namespace kiln::compile {

struct HeaderSettings {
  bool enabled = true;
  /// Smallest number of headers in a closure that gets a precompiled header. Measured with NVRTC 13.0:
  ///
  /// headers                   files  time with / without   saved
  /// cuda_bf16.h                  18  0.7                   10 to 20 ms
  /// mma.h                            0.5                   10 to 20 ms
  /// cuda/std/type_traits        211  0.1                   400 to 800 ms
  /// CUB                         622  0.2                   400 to 800 ms
  ///
  /// Creating costs 0.3 to 0.5 of a compile, proving 0.2.
  std::size_t min_files = 64;
  /// Smallest share of the front end in the creator's compile time. A proof repeats the other phases, so
  /// little is gained where they take most of the time.
  double min_front_end = 0.5;
  /// Number, from 1, of the compile of a name that creates the header. With 2, an engine that needs
  /// one kernel pays nothing.
  unsigned created_by = 2;
  /// Bytes of address space in each worker that uses a header; memory is taken only as far as it is used.
  /// CUB's block primitives need 140 to 190 MB. A header that does not fit is not used.
  std::uint64_t heap_bytes = std::uint64_t{512} << 20;
  /// Limits of all headers together: the least recently used are dropped first.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  std::size_t max_count = 8;
  /// For tests: called when a worker has just created this file.
  std::function<void(const std::string& file)> on_created{};
};

/// The creator's results, with which the first use in another process is compared.
struct HeaderProof {
  WorkerRequest request;  ///< the creator's, without its header order
  std::string image, diagnostics;
  std::vector<std::string> lowered_names;
};

/// An unlinked file, and its creator's list of the headers in it: a compile that uses the file lists none.
struct PrecompiledHeader {
  base::Fd file;
  base::FileStamp stamp;
  pid_t creator = 0;
  std::vector<std::string> headers_read;
  HeaderProof proof;

  ~PrecompiledHeader();
  /// The path by which a worker of this process opens the file.
  std::string path() const;
  /// True when the file is as it was when the host took it.
  bool intact() const noexcept;
};

/// Thread-safe. A forked child starts without the headers of its parent.
class PrecompiledHeaders {
 public:
  explicit PrecompiledHeaders(HeaderSettings settings = {}) : settings_(std::move(settings)) {}
  PrecompiledHeaders(const PrecompiledHeaders&) = delete;
  PrecompiledHeaders& operator=(const PrecompiledHeaders&) = delete;

  const HeaderSettings& settings() const noexcept { return settings_; }

  enum class Step { without, create, prove, use };
  struct Turn {
    Step step = Step::without;
    std::shared_ptr<const PrecompiledHeader> header;  ///< to prove or to use
    pid_t only_in = 0;  ///< the only worker that the header is proven in; 0: all
  };
  /// Returns what the calling compile has to do, and counts it as `compiles` compiles. `create` and `prove`
  /// are given to one compile at a time, which must then report its result with one of the functions below.
  Turn take(const Digest& name, unsigned compiles = 1);
  void created(const Digest& name, std::shared_ptr<const PrecompiledHeader> header);
  /// Worker `pid` gave the same result as the compile without the header. A worker other than the creator
  /// proves the header for all workers.
  void proven(const Digest& name, const Turn& turn, pid_t pid);
  /// The source did not compile, so the header is neither good nor bad. The next compile
  /// tries again, a few times.
  void undecided(const Digest& name);
  /// A use was sent to a worker in which the header is not proven. The next compile proves it again.
  void unproven(const Digest& name);
  /// Stops the use of this name's header, and logs it at level info.
  void off(const Digest& name, const std::string& why);
  /// Stops all use of headers in this process: a header gave another image than the headers
  /// themselves. Warns once.
  void off_for_all(const std::string& why);
  void count_use();

  struct Counts {
    std::uint64_t created = 0, proven = 0, used = 0, off = 0, evicted = 0;
    std::uint64_t held = 0, held_bytes = 0;  ///< now
  };
  Counts counts() const;
  /// Drops headers that were not used for `idle`. take() does this with ten minutes. ImageCompiler
  /// (runtime/path/compile.hpp) drops all headers when the last worker leaves.
  void drop_idle(std::chrono::seconds idle);

 private:
  enum class Phase { seen, creating, unproven, proving, proven, off };
  struct Tracked {
    Phase phase = Phase::seen;
    unsigned compiles = 0, attempts = 0;
    std::uint64_t uses = 0;
    std::shared_ptr<const PrecompiledHeader> header;
    pid_t only_in = 0;
    std::chrono::steady_clock::time_point last_use{};
  };
  struct State {
    std::mutex mutex;
    std::map<Digest, Tracked> tracked;
    Counts counts;
    bool off = false;
  };
  static void drop(State& state, Tracked& tracked);
  static void drop_idle_locked(State& state, std::chrono::seconds idle);
  void make_room(State& state, const Digest& keep);

  const HeaderSettings settings_;
  mutable base::PerProcess<State> state_;
};

}  // namespace kiln::compile
