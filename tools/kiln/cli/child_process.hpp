// A child process with pipes to its stdin and from its stdout; stderr is ours.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"

namespace kiln::cli {

class ChildProcess {
 public:
  /// argv[0] is a path. Throws Error(io).
  explicit ChildProcess(const std::vector<std::string>& argv);
  /// Kills what was not waited for.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Until it closes its stdout.
  std::string read_all();
  /// The next line, without its end; false when there is none.
  bool read_line(std::string& line);
  /// One byte within `milliseconds`; false when none came.
  bool wait_for_byte(int milliseconds);
  void close_input() noexcept { in_.reset(); }
  /// SIGKILL; does not return before it has ended.
  void kill() noexcept;
  /// Exit status, or 128 + signal.
  int wait();

 private:
  pid_t pid_ = -1;
  base::Fd in_, out_;
  std::string unread_;
};

/// The executable of that name in PATH, else in `directories`; empty when there is none.
std::string find_program(const std::string& name, const std::vector<std::string>& directories);

}  // namespace kiln::cli
