// Ctrl-C: exit 130 at once, or a request that a long command heeds when it can.
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

}  // namespace kiln::cli
