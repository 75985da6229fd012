// The command that `kiln wrap` runs.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace kiln::cli {

struct WrappedCommand {
  std::vector<std::string> argv;
  std::map<std::string, std::string> variables;  ///< set in its environment
  bool output_to_stderr = false;                 ///< its stdout is this process's stderr
};

/// Ignores the signals again that were ignored when the process began, such as SIGHUP under nohup. kiln has set
/// a handler for SIGINT since.
void keep_ignored_signals() noexcept;

/// Runs the command and waits for its end. PATH is searched. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and
/// SIGUSR2 that a process sends to this one go to the command; what a terminal sends reaches both anyway. A
/// signal that was ignored when the process began is ignored by both.
/// Returns the exit status, or 128 + the signal that ended the command. Throws Error(io) when it cannot be
/// started.
int run_wrapped(const WrappedCommand& command);

}  // namespace kiln::cli
