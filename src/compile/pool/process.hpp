// One compile worker as its host sees it: a child process at the other end of a socket.
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

/// Settings with which a worker is started.
struct WorkerSettings {
  std::string executable{};
  std::uint64_t address_space = 0;  ///< bytes, RLIMIT_AS; 0: no limit
  /// CPU time of one compile, in case the host cannot kill the worker at its deadline; 0: no limit.
  double cpu_seconds = 0;
  toolchain::CompilerLibraries compiler{};  ///< opened before the first request comes; empty: opened with it
};

class WorkerProcess {
 public:
  /// Starts a worker with posix_spawn. The worker has default signals, its own process group, a whitelisted
  /// environment, standard streams and the socket as its only descriptors, and no core files. Throws
  /// Error(no_compiler) that names the executable and the reason.
  static std::unique_ptr<WorkerProcess> spawn(const WorkerSettings& settings);
  /// Kills and reaps the worker. Does nothing in a forked child of the host, where the descriptors
  /// were closed at the fork.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Why we killed a worker. `malformed`: its answer could not be decoded. `left`: it closed its socket
  /// without an answer, but did not exit.
  enum class Reason { none, deadline, memory, cancelled, malformed, left };
  struct Answer {
    enum class Fate { answered, timed_out, died, out_of_memory, cancelled } fate = Fate::died;
    WorkerResponse response;
    std::string how;                ///< "killed by signal 11 (Segmentation fault)"
    int signal = 0;                 ///< signal that killed it; 0: none
    bool killed_by_us = false;      ///< we sent that signal
    base::Clock::duration ran{};    ///< from the request to the answer
    std::uint64_t peak_memory = 0;  ///< highest resident memory during this compile, in bytes; 0: not known
  };
  /// Sends one request and waits for the answer. After any fate but `answered` the worker is dead and must be
  /// dropped. One thread at a time.
  Answer ask(const WorkerRequest& request, base::Deadline deadline);
  /// Ends a running ask() at once. Thread-safe. Only the first reason counts.
  void kill(Reason reason) noexcept;
  bool was_killed() const noexcept { return reason_ != Reason::none; }
  /// True for an idle worker that still waits for a request: nothing to read, and not closed.
  bool alive() const noexcept;
  /// Bytes of memory resident now; 0 when that cannot be read. Thread-safe.
  std::uint64_t resident_memory() const noexcept;
  pid_t pid() const noexcept { return pid_; }

 private:
  WorkerProcess(pid_t pid, base::Fd socket, std::unique_ptr<base::TempDir> directory);
  std::string reap(int* signal = nullptr) noexcept;
  void send_kill() noexcept;

  const pid_t pid_;
  const std::uint64_t generation_;
  base::Fd socket_;
  base::Fd pidfd_;  ///< empty where the kernel or a sandbox has no pidfd; the pid is used then
  bool reaped_ = false;
  std::atomic<Reason> reason_{Reason::none};
  /// The worker's TMPDIR. It is removed with the files that a killed worker leaves.
  std::unique_ptr<base::TempDir> directory_;
};

/// Paths where the worker of an installed kiln may lie, in the order of the search.
std::vector<std::string> worker_candidates();
/// The value of KILN_WORKER, or the first of worker_candidates() that can be run. Empty when there is none.
std::string find_worker_executable(const std::string& configured);

}  // namespace kiln::compile
