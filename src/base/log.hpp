// kiln's own logger: lines on stderr, or wherever the embedding program sends them. Thread-safe.
//
// A forked child writes to stderr until it says otherwise, and never waits for a thread of its parent: what
// its parent had set may be locked, or use what the child does not have. The level stays.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace kiln::base {

enum class Level : int { trace = 0, debug, info, warning, error, off };

/// Takes a line: `level` is Level's number; `message` has `size` bytes and a zero behind them, and is gone
/// when the call returns. Called from any thread that logs, from several at once. It may call kiln, which
/// holds no lock meanwhile; lines logged by the calling thread in there go to stderr. What it throws is
/// swallowed.
using LogFunction = void (*)(int level, const char* message, std::size_t size, void* user);
/// Sends later lines of at least `level` to `sink` instead of stderr; null restores stderr. Both change at
/// once. When this returns the former sink is not running and is not called again, so that what it used may
/// go. Called from within the former sink it does not wait for that one call. A sink must not wait for
/// another thread that is in here.
void set_log(LogFunction sink, void* user, Level level);

/// The same with a function that is called by one thread at a time, at the level as it is; it must therefore
/// not wait for other threads that log. An empty one restores stderr.
void set_log_sink(std::function<void(Level, std::string_view)> sink);
/// Default: warning.
void set_log_level(Level level) noexcept;
/// "trace debug info warning error off", from environment or file: what set_log was told beats it. False for
/// another name.
bool set_log_level(std::string_view name) noexcept;
bool log_enabled(Level level) noexcept;

void log(Level level, std::string_view message) noexcept;
inline void debug(std::string_view message) noexcept { log(Level::debug, message); }
inline void info(std::string_view message) noexcept { log(Level::info, message); }
inline void warn(std::string_view message) noexcept { log(Level::warning, message); }

/// Once per process and `topic`: a fault that recurs must not flood the log.
void warn_once(std::string_view topic, std::string_view message) noexcept;

}  // namespace kiln::base
