#include "runtime/path/host_lock.hpp"

#include <optional>

#include "base/log.hpp"
#include "runtime/path/flight_error.hpp"

namespace kiln::runtime {
namespace {

using End = cache::FlightFile::End;

/// A waiter gives the holder of a flight lock this much longer than a compile may take.
constexpr auto kFlightGrace = std::chrono::seconds(10);

}  // namespace

std::vector<cache::BoardEntry> HostLock::board() {
  const auto file = state_.stores.flight_file();
  return file ? file->board() : std::vector<cache::BoardEntry>();
}

/// `theirs` becomes the error of the holder's compile. An error that does not hold for this process only
/// repeats the wait: a new wait ignores errors that were on the board before it.
cache::FlightFile::Taken HostLock::wait_for(cache::FlightFile& file, const Unit& unit,
                                            std::exception_ptr& theirs) {
  const auto patience = seconds(state_.config.compile_deadline_s()) + kFlightGrace;
  std::optional<Stopwatch> waiting;
  const auto wait_began = [&] {
    if (waiting) return;
    tell(state_.events, KILN_EVENT_WAIT_STARTED, unit.instantiation);
    waiting.emplace();
  };
  const auto wait_ended = [&] {
    if (waiting)
      tell(state_.events, KILN_EVENT_WAIT_FINISHED, unit.instantiation, {.milliseconds = waiting->ms()});
  };
  cache::FlightFile::Taken taken;
  try {
    do {
      taken = file.take(unit.made.key, base::Deadline::after(patience), &stopped_, wait_began,
                        hint(unit.instantiation));
      theirs = taken.end == End::failed ? decode_flight_error(taken.error, state_.config.compile_deadline_s())
                                        : nullptr;
    } while (taken.end == End::failed && !theirs);
  } catch (const Error&) {
    wait_ended();
    throw;
  }
  wait_ended();
  return taken;
}

std::shared_ptr<cache::Flight> HostLock::take(const Unit& unit) {
  const auto file = state_.stores.flight_file();
  if (!file) return nullptr;
  cache::FlightFile::Taken taken;
  std::exception_ptr theirs;
  try {
    taken = wait_for(*file, unit, theirs);
  } catch (const Error& error) {
    base::warn_once("flight", std::string(error.what()) + "; this process compiles without the lock");
    return nullptr;
  }
  switch (taken.end) {
    case End::taken:
      break;
    case End::timed_out:
      ++state_.counters.flight_timeouts;
      break;
    case End::left:
      ++state_.counters.convoy_left;
      break;
    case End::failed:
      ++state_.counters.waits;
      std::rethrow_exception(theirs);
    case End::cancelled:
      throw Error(Errc::deadline,
                  "the service was destroyed while it waited for " + hint(unit.instantiation));
  }
  return std::move(taken.flight);
}

}  // namespace kiln::runtime
