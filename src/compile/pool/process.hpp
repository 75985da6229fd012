// One compile worker as its host sees it: a child process behind a socket.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/file.hpp"
#include "compile/worker/protocol.hpp"

namespace kiln::compile {

/// What a worker is started with.
struct WorkerSettings {
  std::string executable{};
  std::uint64_t address_space = 0;  ///< bytes, RLIMIT_AS; 0: no limit
  double cpu_seconds = 0;  ///< of one compile, for a host that cannot kill it at its deadline; 0: no limit
  toolchain::CompilerLibraries compiler{};  ///< opened before the first request comes; empty: with it
};

class WorkerProcess {
 public:
  /// posix_spawn: default signals, an own process group, a whitelisted environment, no descriptor but the
  /// socket, core files off. Throws Error(no_compiler) naming the executable and the reason.
  static std::unique_ptr<WorkerProcess> spawn(const WorkerSettings& settings);
  /// Kills and reaps. In a forked child of the host: nothing, the descriptors were closed at the fork.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Why a worker was killed by us. `malformed`: its answer was not one. `left`: it closed its socket without
  /// an answer, and did not end.
  enum class Reason { none, deadline, memory, cancelled, malformed, left };
  struct Answer {
    enum class Fate { answered, timed_out, died, out_of_memory, cancelled } fate = Fate::died;
    WorkerResponse response;
    std::string how;                ///< "killed by signal 11 (Segmentation fault)"
    int signal = 0;                 ///< that killed it; 0: none
    bool killed_by_us = false;      ///< that signal was ours
    base::Clock::duration ran{};    ///< from the request to the answer
    std::uint64_t peak_memory = 0;  ///< bytes resident at the most during this compile; 0: not known
  };
  /// After anything but `answered` the worker is dead and must be dropped. One thread at a time.
  Answer ask(const WorkerRequest& request, base::Deadline deadline);
  /// Ends a running `ask` at once. Thread-safe; the first reason counts.
  void kill(Reason reason) noexcept;
  bool was_killed() const noexcept { return reason_ != Reason::none; }
  /// Nothing to read and not closed: an idle worker that still waits for a request.
  bool alive() const noexcept;
  /// Bytes resident now; 0 when that cannot be read. Thread-safe.
  std::uint64_t resident_memory() const noexcept;
  pid_t pid() const noexcept { return pid_; }

 private:
  WorkerProcess(pid_t pid, base::Fd socket, std::unique_ptr<base::TempDir> directory);
  std::string reap(int* signal = nullptr) noexcept;
  void send_kill() noexcept;

  const pid_t pid_;
  const std::uint64_t generation_;
  base::Fd socket_;
  base::Fd pidfd_;  ///< empty where the kernel or a sandbox has none: then the pid must do
  bool reaped_ = false;
  std::atomic<Reason> reason_{Reason::none};
  std::unique_ptr<base::TempDir>
      directory_;  ///< the worker's TMPDIR: what a killed worker leaves goes with it
};

/// Where the worker of an installed kiln may lie, in the order of the search.
std::vector<std::string> worker_candidates();
/// KILN_WORKER's value, else the first of worker_candidates() that can be run. Empty: none.
std::string find_worker_executable(const std::string& configured);

}  // namespace kiln::compile
