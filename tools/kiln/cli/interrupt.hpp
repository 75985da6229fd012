// Ctrl-C: exit 130 at once, or a request that a long command heeds when it can. And a reader of stdout that
// went away.
#pragma once

namespace kiln::cli {

/// Installs the handlers: SIGINT exits with 130, SIGPIPE ends the process quietly.
void install_signal_handlers() noexcept;

/// While it lives, the first Ctrl-C only sets `requested`; the second exits.
class PoliteInterrupt {
 public:
  PoliteInterrupt() noexcept;
  ~PoliteInterrupt();
  PoliteInterrupt(const PoliteInterrupt&) = delete;
  PoliteInterrupt& operator=(const PoliteInterrupt&) = delete;
  static bool requested() noexcept;
};

/// From here on SIGPIPE counts as a first Ctrl-C, and the process ends by it in `end_if_pipe_closed` only: a
/// service saves its lifetime counters when it is destroyed.
void defer_closed_pipe() noexcept;
/// SIGPIPE came, and was deferred.
bool pipe_closed() noexcept;
/// Ends the process by the SIGPIPE that was deferred, if one was.
void end_if_pipe_closed() noexcept;

}  // namespace kiln::cli
