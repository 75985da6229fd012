#include "base/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <mutex>
#include <set>

namespace kiln::base {
namespace {

constexpr std::string_view kNames[] = {"trace", "debug", "info", "warning", "error", "off"};

std::atomic<Level> g_level{Level::warning};

struct Log {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger = make_stderr();
  std::set<std::string, std::less<>> said;

  static std::shared_ptr<spdlog::logger> make_stderr() {
    auto logger =
        std::make_shared<spdlog::logger>("kiln", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern("kiln: %^%l%$: %v");
    logger->set_level(spdlog::level::trace);
    logger->flush_on(spdlog::level::trace);
    return logger;
  }
};

class FunctionSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(std::function<void(Level, std::string_view)> function)
      : function_(std::move(function)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& msg) override {
    function_(static_cast<Level>(msg.level), std::string_view(msg.payload.data(), msg.payload.size()));
  }
  void flush_() override {}
  std::function<void(Level, std::string_view)> function_;
};

// Never destroyed: destructors of other objects may still log at exit. Not registered with spdlog, whose
// registry belongs to the embedding program.
Log& instance() {
  static Log* log = new Log;
  return *log;
}

}  // namespace

void set_log_sink(std::function<void(Level, std::string_view)> sink) {
  std::lock_guard lock(instance().mutex);
  if (!sink) {
    instance().logger = Log::make_stderr();
    return;
  }
  instance().logger =
      std::make_shared<spdlog::logger>("kiln", std::make_shared<FunctionSink>(std::move(sink)));
  instance().logger->set_level(spdlog::level::trace);
}

void set_log_level(Level level) noexcept { g_level = level; }

bool set_log_level(std::string_view name) noexcept {
  for (int i = 0; i < 6; ++i) {
    if (kNames[i] == name) {
      g_level = static_cast<Level>(i);
      return true;
    }
  }
  return false;
}

bool log_enabled(Level level) noexcept { return level >= g_level.load(std::memory_order_relaxed); }

void log(Level level, std::string_view message) noexcept try {
  if (!log_enabled(level)) return;
  std::shared_ptr<spdlog::logger> logger;
  {
    std::lock_guard lock(instance().mutex);
    logger = instance().logger;
  }
  logger->log(static_cast<spdlog::level::level_enum>(level),
              spdlog::string_view_t(message.data(), message.size()));
} catch (...) {
}

void warn_once(std::string_view topic, std::string_view message) noexcept try {
  {
    std::lock_guard lock(instance().mutex);
    if (!instance().said.emplace(topic).second) return;
  }
  warn(message);
} catch (...) {
}

}  // namespace kiln::base
