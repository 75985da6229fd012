// A terminal as a redrawn screen. The terminal is restored however the command ends.
#pragma once

#include <termios.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace kiln::cli {

/// Only one object may exist at a time. While it lives, stdout shows its frames, and keys are read from stdin
/// when that is a terminal. `wait` reports the signals that end, stop or resize the command.
class LiveScreen {
 public:
  /// REQUIRES: stdout is a terminal. Throws Error(io).
  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  /// Draws as many of the lines as the screen has rows. Returns false when the terminal is gone.
  bool draw(const std::vector<std::string>& lines);
  /// Number of lines that fit.
  static std::size_t rows();

  enum class Wake {
    time,    ///< nothing happened
    redraw,  ///< resized, continued after a stop, or a key asks for it
    quit     ///< q, Ctrl-C or a signal: see `signal`
  };
  Wake wait(std::chrono::milliseconds most);
  /// The signal that ended the command; 0 for q.
  int signal() const noexcept { return signal_; }

 private:
  void enter();
  void leave() noexcept;
  Wake on_signal();
  Wake on_key();

  bool keys_ = false;  // stdin is a terminal
  int signal_ = 0;
  termios before_{};
  sigset_t mask_before_{};
  base::Fd signals_;
};

}  // namespace kiln::cli
