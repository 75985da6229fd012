// A terminal as a screen that is redrawn, given back as it was however the command ends.
#pragma once

#include <termios.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace kiln::cli {

/// One at a time. While it lives stdout shows its frames, keys are read from stdin when that is a terminal,
/// and the signals that end, stop or resize come out of `wait`.
class LiveScreen {
 public:
  /// REQUIRES: stdout is a terminal. Throws Error(io).
  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  /// As many of the lines as there are rows. False when the terminal is gone.
  bool draw(const std::vector<std::string>& lines);
  /// Lines that fit.
  static std::size_t rows();

  enum class Wake {
    time,    ///< nothing happened
    redraw,  ///< resized, continued after a stop, or a key asks for it
    quit     ///< q, Ctrl-C or a signal: see `signal`
  };
  Wake wait(std::chrono::milliseconds most);
  /// That ends the command; 0 for q.
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
