// One compile worker as its host sees it: a child process behind a socket.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/file.hpp"
#include "compile/protocol.hpp"

namespace kiln::compile {

class WorkerProcess {
 public:
  /// posix_spawn: default signals, an own process group, a whitelisted environment, no descriptor but the
  /// socket, core files off. Throws Error(no_compiler) naming the executable and the reason.
  static std::unique_ptr<WorkerProcess> spawn(const std::string& executable);
  /// Kills and reaps. In a forked child of the host: closes descriptors only.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  struct Answer {
    enum class Fate { answered, timed_out, died } fate = Fate::died;
    WorkerResponse response;
    std::string how;  ///< "killed by signal 11 (Segmentation fault)"
  };
  /// After anything but `answered` the worker is dead and must be dropped.
  Answer ask(const WorkerRequest& request, base::Deadline deadline);
  /// Nothing to read and not closed: an idle worker that still waits for a request.
  bool alive() const noexcept;
  pid_t pid() const noexcept { return pid_; }

 private:
  WorkerProcess(pid_t pid, base::Fd socket, std::unique_ptr<base::TempDir> directory)
      : pid_(pid), host_(::getpid()), socket_(std::move(socket)), directory_(std::move(directory)) {}
  std::string reap(bool kill_first) noexcept;

  pid_t pid_, host_;
  base::Fd socket_;
  std::unique_ptr<base::TempDir>
      directory_;  ///< the worker's TMPDIR: what a killed worker leaves goes with it
};

/// KILN_WORKER's value, else kiln-worker beside this object, in ../libexec/kiln, or beside the program.
/// Empty: none.
std::string find_worker_executable(const std::string& configured);

}  // namespace kiln::compile
