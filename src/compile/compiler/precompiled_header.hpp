// Precompiled headers of one host process: which there are, who makes one, and what was proven of it.
//
// NVRTC never notices that a header has changed since; so a precompiled header is found by a digest of all
// that went into it, contents included, and is never looked up in any other way. Its file is a worker's work,
// taken away and unlinked by the host before anybody else sees it: workers reach it as /proc/<host>/fd/<n>,
// no name can be given to another file, and however the host dies nothing is left behind.
//
//   absent -> seen -> creating -> unproven -> proving -> proven
//                        |           ^-----------|          every fault on the way: off, for this process
//
// The first asker of a name only leaves a note: its compile is not made longer for followers that may never
// come. Nobody waits for another: whoever finds `creating` or `proving` compiles without.
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
  /// Headers of the closure from which on one is made. Measured with NVRTC 13.0 (compile with over without):
  /// cuda_bf16.h (18 files) 0.7, mma.h 0.5, both 10 to 20 ms saved; cuda/std/type_traits (211) 0.1, CUB (622)
  /// 0.2, 400 to 800 ms saved. Creating costs 0.3 to 0.5 of a compile, proving 0.2.
  std::size_t min_files = 64;
  /// Of its creator's compile time. A proof repeats the rest, so where that is most of it, little is gained.
  double min_front_end = 0.5;
  /// Which asker of a name creates it, from 1. The second: an engine that needs one kernel pays nothing.
  unsigned created_by = 2;
  /// Address space in each worker that uses one; memory as far as it is used. CUB's block primitives need 140
  /// to 190 MB. What does not fit is compiled without.
  std::uint64_t heap_bytes = std::uint64_t{512} << 20;
  /// Beyond, the least recently used go.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  std::size_t max_count = 8;
  /// For tests: a worker has just created this file.
  std::function<void(const std::string& file)> on_created{};
};

/// What the first use in another process is compared with.
struct HeaderProof {
  WorkerRequest request;  ///< the creator's, without its header order
  std::string image, diagnostics;
  std::vector<std::string> lowered_names;
};

/// An unlinked file, and its creator's list of the files in it: a use lists none.
struct PrecompiledHeader {
  base::Fd file;
  base::FileStamp stamp;
  pid_t creator = 0;
  std::vector<std::string> headers_read;
  HeaderProof proof;

  ~PrecompiledHeader();
  /// How a worker of this process opens it.
  std::string path() const;
  /// As it was when it was taken over.
  bool intact() const noexcept;
};

/// Thread-safe. A forked child starts with none of its parent's.
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
    pid_t only_in = 0;                                ///< the only worker it was proven in; 0: all
  };
  /// What the compile that asks is to do; it counts as so many askers. `create` and `prove` are given to one
  /// at a time, who must answer with one of the following.
  Turn take(const Digest& name, unsigned askers = 1);
  void created(const Digest& name, std::shared_ptr<const PrecompiledHeader> header);
  /// In a worker `pid` that gave the same as the compile without. Another than the creator stands for all.
  void proven(const Digest& name, const Turn& turn, pid_t pid);
  /// Neither good nor bad (the source did not compile): the next asker tries again, a few times.
  void undecided(const Digest& name);
  /// A use was sent to a worker it was not proven in: the next asker proves it again.
  void unproven(const Digest& name);
  /// Not for this name any more. Says so in the log, at level info.
  void off(const Digest& name, const std::string& why);
  /// Not in this process any more: a header gave another image than the headers. Warns once.
  void off_for_all(const std::string& why);
  void count_use();

  struct Counts {
    std::uint64_t created = 0, proven = 0, used = 0, off = 0, evicted = 0;
    std::uint64_t held = 0, held_bytes = 0;  ///< now
  };
  Counts counts() const;
  /// Gives back what nobody has used for `idle`. take() does so for ten minutes; the pipeline for all when
  /// the last worker leaves.
  void drop_idle(std::chrono::seconds idle);

 private:
  enum class Phase { seen, creating, unproven, proving, proven, off };
  struct Tracked {
    Phase phase = Phase::seen;
    unsigned askers = 0, attempts = 0;
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
