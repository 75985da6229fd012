// Ctrl-C and closed pipes. Ctrl-C exits with 130 at once, or sets a request that a long command checks. A
// closed pipe means that the reader of stdout is gone.
#pragma once

namespace kiln::cli {

/// Installs the handlers: SIGINT exits with 130, SIGPIPE ends the process quietly.
void install_signal_handlers() noexcept;

/// While an object of this class lives, the first Ctrl-C only sets `requested` and the second one exits.
class PoliteInterrupt {
 public:
  PoliteInterrupt() noexcept;
  ~PoliteInterrupt();
  PoliteInterrupt(const PoliteInterrupt&) = delete;
  PoliteInterrupt& operator=(const PoliteInterrupt&) = delete;
  static bool requested() noexcept;
};

/// Thrown by work that a Ctrl-C ends in the middle.
struct Interrupted {};

/// From here on SIGPIPE counts as a first Ctrl-C, and only `end_if_pipe_closed` ends the process by it.
/// A service saves its lifetime counters in its destructor, and a process that SIGPIPE kills at once
/// would lose them.
void defer_closed_pipe() noexcept;
/// True after a deferred SIGPIPE.
bool pipe_closed() noexcept;
/// Ends the process by SIGPIPE when one was deferred; else does nothing.
void end_if_pipe_closed() noexcept;

}  // namespace kiln::cli
