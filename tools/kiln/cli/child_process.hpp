// A child process with pipes to its stdin and from its stdout. It inherits this process's stderr.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"

namespace kiln::cli {

class ChildProcess {
 public:
  /// `argv[0]` is a path; PATH is not searched. Throws Error(io).
  explicit ChildProcess(const std::vector<std::string>& argv);
  /// Closes the pipes, then kills a child that `wait` has not reaped.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Reads until the child closes its stdout.
  std::string read_all();
  /// Reads the next line, without its line end. Returns false when there is none.
  bool read_line(std::string& line);
  /// Waits for one byte and consumes it. Returns false when none came within `milliseconds`.
  bool wait_for_byte(int milliseconds);
  void close_input() noexcept { in_.reset(); }
  /// Sends SIGKILL, and returns only after the child has ended.
  void kill() noexcept;
  /// Waits for the child's end. Returns its exit status, or 128 + the signal that ended it.
  int wait();

 private:
  pid_t pid_ = -1;
  base::Fd in_, out_;
  std::string unread_;
};

/// Returns the path of the executable `name` in PATH, else in `directories`; empty when neither has it.
std::string find_program(const std::string& name, const std::vector<std::string>& directories);

}  // namespace kiln::cli
