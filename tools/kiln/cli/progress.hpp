// Progress of a long command: a bar on a terminal, one line per finished item elsewhere.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "base/deadline.hpp"

namespace kiln::cli {

/// Thread-safe. The bar is drawn on stderr and erased by the destructor. When no thread can be started for
/// the bar, lines are printed instead and `on_tick` is never called.
class Progress {
 public:
  /// `lines_on_stdout` false sends the lines to stderr, because stdout is used for JSON. `on_tick` is called
  /// ten times a second on a thread of its own, and may call `remark`.
  Progress(std::size_t total, bool lines_on_stdout, std::function<void(Progress&)> on_tick = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void started(const std::string& what);
  /// `what` is the string given to `started`. `line` is printed when there is no bar, and always when it
  /// `matters` (a failure).
  void finished(const std::string& what, const std::string& line, bool matters);
  /// Sets the number of finished items to `done`, without a line for each.
  void reached(std::size_t done);
  /// Prints a remark on stderr, above the bar.
  void remark(const std::string& text);

 private:
  void draw_locked();
  void clear_locked();
  std::string bar_locked(std::size_t width) const;
  void step_locked(std::size_t done);
  void tick();

  const std::size_t total_;
  bool bar_;
  const bool lines_on_stdout_;
  const std::function<void(Progress&)> on_tick_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false, drawn_ = false;
  std::size_t done_ = 0, failed_ = 0;
  /// Recent steps, for the rate. Old steps are dropped: cache hits at the start say little
  /// about later compiles.
  std::deque<std::pair<base::Clock::time_point, std::size_t>> steps_{{base::Clock::now(), 0}};
  std::list<std::pair<std::string, base::Clock::time_point>> running_;  // oldest first
  std::thread ticker_;
};

}  // namespace kiln::cli
