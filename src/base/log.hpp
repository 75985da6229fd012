// kiln's own logger: lines on stderr, or wherever the embedding program sends them. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kiln::base {

enum class Level : int { trace = 0, debug, info, warning, error, off };

/// Sends later lines to `sink` instead of stderr; an empty function restores stderr.
void set_log_sink(std::function<void(Level, std::string_view)> sink);
/// Default: warning.
void set_log_level(Level level) noexcept;
/// "trace debug info warning error off"; false leaves the level alone.
bool set_log_level(std::string_view name) noexcept;
bool log_enabled(Level level) noexcept;

void log(Level level, std::string_view message) noexcept;
inline void debug(std::string_view message) noexcept { log(Level::debug, message); }
inline void info(std::string_view message) noexcept { log(Level::info, message); }
inline void warn(std::string_view message) noexcept { log(Level::warning, message); }

/// Once per process and `topic`: a fault that recurs must not flood the log.
void warn_once(std::string_view topic, std::string_view message) noexcept;

}  // namespace kiln::base
