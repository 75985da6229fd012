// kiln's own logger: lines on stderr, or wherever the embedding program sends them. Thread-safe.
//
// A forked child writes to stderr until it sets a sink itself, and it never waits for a thread of its parent.
// The parent's sink may be locked, or may use threads that the child does not have. The level stays.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace kiln::base {

enum class Level : int { trace = 0, debug, info, warning, error, off };

/// Receives one line. `level` is the number of a Level. `message` has `size` bytes and a zero after them, and
/// is valid only during the call. Any thread that logs calls this function, several at once. The function may
/// call kiln, which holds no lock meanwhile; lines that this thread logs during the call go to stderr.
/// Exceptions are swallowed.
using LogFunction = void (*)(int level, const char* message, std::size_t size, void* user);
/// Sends later lines of at least `level` to `sink` instead of stderr; null restores stderr. Sink and level
/// change together. When set_log returns, the former sink is not running and is never called again, so its
/// data may be destroyed. A call from inside the former sink does not wait for that one call of the sink. A
/// sink must not wait for another thread that is in set_log.
void set_log(LogFunction sink, void* user, Level level);

/// Sends later lines to `sink`, which one thread at a time calls; the level stays as it is. `sink` must not
/// wait for other threads that log. An empty function restores stderr.
void set_log_sink(std::function<void(Level, std::string_view)> sink);
/// The default is `warning`.
void set_log_level(Level level) noexcept;
/// Takes a name from environment or file: trace, debug, info, warning (or warn), error, off. Has no effect
/// once set_log was called. Returns false for an unknown name.
bool set_log_level(std::string_view name) noexcept;
bool log_enabled(Level level) noexcept;

void log(Level level, std::string_view message) noexcept;
inline void debug(std::string_view message) noexcept { log(Level::debug, message); }
inline void info(std::string_view message) noexcept { log(Level::info, message); }
inline void warn(std::string_view message) noexcept { log(Level::warning, message); }

/// Logs once per process and `topic`: a fault that recurs must not flood the log.
void warn_once(std::string_view topic, std::string_view message) noexcept;

}  // namespace kiln::base
