#include "base/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>

#include "base/process.hpp"
#include "base/terminal.hpp"

namespace kiln::base {
namespace {

using Sink = std::function<void(Level, std::string_view)>;

constexpr std::string_view kNames[] = {"trace", "debug", "info", "warning", "error", "off"};

constinit std::atomic<Level> g_level{Level::warning};
std::atomic<bool> g_level_was_set{false};  // by the program: environment and files do not overrule it

/// A sink, from the call that set it until the last call of it has ended.
struct Route {
  explicit Route(Sink s) : sink(std::move(s)) {}
  const Sink sink;
  int running = 0;  // guarded by Log::mutex
};

/// Lines on stderr through spdlog. The logger is not registered, because spdlog's registry belongs to the
/// embedding program. Two locks of spdlog are avoided, since a fork could leave them locked: its console
/// mutex and the mutex of its error handler.
class Stderr {
 public:
  Stderr() : logger_("kiln", std::make_shared<spdlog::sinks::stderr_color_sink_st>(colour())) {
    logger_.set_pattern("kiln: %^%l%$: %v");
    logger_.set_level(spdlog::level::trace);
    logger_.flush_on(spdlog::level::trace);
    logger_.set_error_handler([](const std::string&) {});
  }
  void write(Level level, std::string_view message) {
    const std::lock_guard lock(mutex_);
    logger_.log(static_cast<spdlog::level::level_enum>(level),
                spdlog::string_view_t(message.data(), message.size()));
  }

 private:
  static spdlog::color_mode colour() noexcept {
    return shows_colours(STDERR_FILENO) ? spdlog::color_mode::always : spdlog::color_mode::never;
  }
  std::mutex mutex_;
  spdlog::logger logger_;
};

struct Log {
  std::mutex mutex;              // guards the members below; never held while a sink runs
  std::shared_ptr<Route> route;  // null: lines go to stderr
  std::condition_variable left;
  std::set<std::string, std::less<>> said;
  Stderr standard_error;
};

constinit ProcessWide<Log> g_log;

/// The sink that this thread is calling; null outside of one.
thread_local const Route* t_inside = nullptr;

/// A call of a sink, counted from the moment when the sink is chosen until the call ends.
class Call {
 public:
  /// REQUIRES: the log's mutex is held.
  Call(Log& log, std::shared_ptr<Route> route) : log_(log), route_(std::move(route)) {
    ++route_->running;
    t_inside = route_.get();
  }
  ~Call() {
    t_inside = nullptr;
    // Forked inside the sink: mutex and counter are the parent's.
    if (generation_ != process_generation()) return;
    std::shared_ptr<Route> last;  // the sink is destroyed after the mutex is released
    {
      const std::lock_guard lock(log_.mutex);
      --route_->running;
      if (route_.use_count() == 1)
        last = std::move(route_);
      else
        route_.reset();
      log_.left.notify_all();
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  void operator()(Level level, std::string_view message) const { route_->sink(level, message); }

 private:
  Log& log_;
  std::shared_ptr<Route> route_;
  const std::uint64_t generation_ = process_generation();
};

void set_route(Sink sink, std::optional<Level> level) {
  std::shared_ptr<Route> route = sink ? std::make_shared<Route>(std::move(sink)) : nullptr;
  Log& log = g_log.get();
  std::unique_lock lock(log.mutex);
  route.swap(log.route);
  if (level) g_level = *level;
  // Two threads cannot wait for each other here. A thread that waits inside a sink removed a sink that was
  // set later than its own.
  if (route) log.left.wait(lock, [&] { return route->running == (t_inside == route.get() ? 1 : 0); });
}

}  // namespace

void set_log(LogFunction sink, void* user, Level level) {
  g_level_was_set = true;
  if (!sink) return set_route({}, level);
  set_route(
      [sink, user](Level of, std::string_view message) {
        const std::string line(message);  // a sink gets a zero after the text
        sink(static_cast<int>(of), line.c_str(), line.size(), user);
      },
      level);
}

void set_log_sink(Sink sink) {
  if (!sink) return set_route({}, {});
  auto one_at_a_time = std::make_shared<std::mutex>();
  set_route(
      [sink = std::move(sink), one_at_a_time](Level level, std::string_view message) {
        const std::lock_guard lock(*one_at_a_time);
        sink(level, message);
      },
      {});
}

void set_log_level(Level level) noexcept { g_level = level; }

bool set_log_level(std::string_view name) noexcept {
  if (name == "warn") name = "warning";  // the spelling that KILN_MODE uses
  for (int i = 0; i < 6; ++i) {
    if (kNames[i] == name) {
      if (!g_level_was_set) g_level = static_cast<Level>(i);
      return true;
    }
  }
  return false;
}

bool log_enabled(Level level) noexcept { return level >= g_level.load(std::memory_order_relaxed); }

void log(Level level, std::string_view message) noexcept try {
  if (!log_enabled(level)) return;
  Log& log = g_log.get();
  std::optional<Call> call;
  if (!t_inside) {
    const std::lock_guard lock(log.mutex);
    if (!log_enabled(level)) return;  // the level may have changed together with the sink
    if (log.route) call.emplace(log, log.route);
  }
  if (call)
    (*call)(level, message);
  else
    log.standard_error.write(level, message);
} catch (...) {
}

void warn_once(std::string_view topic, std::string_view message) noexcept try {
  Log& log = g_log.get();
  {
    const std::lock_guard lock(log.mutex);
    if (!log.said.emplace(topic).second) return;
  }
  warn(message);
} catch (...) {
}

}  // namespace kiln::base
