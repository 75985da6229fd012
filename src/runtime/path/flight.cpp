// Step 3 of the path: one asker per key, in this process by a future, on this host by cache/flight.
#include <pthread.h>

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "base/no_signals.hpp"
#include "base/nvtx.hpp"
#include "runtime/path/flight_error.hpp"
#include "runtime/path/tier.hpp"

namespace kiln::runtime {
namespace {

/// A waiter gives the holder of a flight lock this much longer than a compile may take.
constexpr auto kFlightGrace = std::chrono::seconds(10);

bool is_local(const std::exception_ptr& error) noexcept try {
  std::rethrow_exception(error);
} catch (const compile::LocalFault&) {
  return true;
} catch (...) {
  return false;
}

/// It ended with the tier, which had nothing.
bool ended_without_compiling(const std::shared_future<Obtained>& result) try {
  result.get();
  return false;
} catch (const Error& error) {
  return error.code() == Errc::not_ready;
} catch (...) {
  return false;
}

constexpr base::Clock::duration kFirstRest = std::chrono::seconds(1), kLastRest = std::chrono::minutes(5);

}  // namespace

/// Until its key changes: the source's own fault, and nothing at play that the key does not cover and that
/// may be mended without another key. For a while: the machine's, which must not be run into blindly.
Pipeline::Lasting Pipeline::lasting(const source::Closure& closure, const std::exception_ptr& error) noexcept
    try {
  std::rethrow_exception(error);
} catch (const Error& e) {
  if (e.code() == Errc::compile_timeout || e.code() == Errc::compile_crashed) return Lasting::pause;
  if (e.code() != Errc::compile_failed && e.code() != Errc::unsupported_arch) return Lasting::no;
  const bool covered =
      !closure.computed && !closure.toolkit_computed && closure.computed_probes.empty() && !closure.changed();
  return covered ? Lasting::until_changed : Lasting::no;
} catch (...) {
  return Lasting::no;
}

std::shared_ptr<cache::FlightFile> Pipeline::flight_file() {
  return flight_file_.get([&]() -> std::shared_ptr<cache::FlightFile> {
    if (!store() || !store()->writable()) return nullptr;
    try {
      return cache::FlightFile::open(
          {.store_identity = store()->identity(), .store_place = store()->directory() + "/v1"});
    } catch (const Error& error) {
      base::warn_once(
          "flight", std::string(error.what()) + "; processes of this host may compile the same kernel twice");
      return nullptr;
    }
  });
}

std::vector<cache::BoardEntry> Pipeline::board() {
  const auto file = flight_file();
  return file ? file->board() : std::vector<cache::BoardEntry>();
}

/// Joins the flight of this key or starts one. The flight runs on a thread of its own, so that each waiter
/// keeps his own deadline and publishing happens after everybody has been answered.
Obtained Pipeline::fly(std::shared_ptr<const Unit> unit, const ObtainOptions& options) {
  std::shared_ptr<Flight> flight;
  bool joined = true;
  {
    State& state = state_.get();
    std::lock_guard lock(state.mutex);
    if (const auto found = state.flights.find(unit->made.key); found != state.flights.end()) {
      flight = found->second;
    } else {
      // Landed, or crashed, between our look in memory and now.
      if (const auto landed = state.memory.find(unit->made.key);
          landed != state.memory.end() && !options.rejected.contains(unit->made.key)) {
        ++counters_.waits;
        counters_.saved(landed->second->facts.compile_ms);
        return {landed->second, Outcome::waited, {}};
      }
      throw_remembered(state, unit->made.key);
      flight = std::make_shared<Flight>(options.urgency, options.may_compile);
      state.flights.emplace(unit->made.key, flight);
      joined = false;
      ++state.running;
    }
  }
  if (joined) {
    ++counters_.waits;
    if (options.urgency == compile::Urgency::caller &&
        flight->urgency.exchange(compile::Urgency::caller) != compile::Urgency::caller)
      workers_.reconsider();
  } else {
    try {
      const base::NoSignals inherited_by_the_thread;
      std::thread([this, unit, options, flight] {
        ::pthread_setname_np(::pthread_self(), "kiln-flight");  // not its starter's
        run_flight(*unit, options, *flight);
      }).detach();
    } catch (const std::exception&) {
      run_flight(*unit, options, *flight);  // no thread to be had: in this one
    }
  }
  if (joined) tell(KILN_EVENT_WAIT_STARTED, *unit);
  const base::NvtxRange range([&] { return "kiln wait " + hint(unit->instantiation); });
  const Stopwatch watch;
  const bool ready = options.deadline.at() == base::Clock::time_point::max()
                         ? (flight->result.wait(), true)
                         : flight->result.wait_until(options.deadline.at()) == std::future_status::ready;
  if (joined) tell(KILN_EVENT_WAIT_FINISHED, *unit, {.milliseconds = watch.ms()});
  if (!ready)
    throw Error(Errc::deadline, "the deadline passed while " + hint(unit->instantiation) +
                                    " was being compiled (it goes on)");
  if (joined && options.may_compile && !flight->may_compile && ended_without_compiling(flight->result))
    return fly(std::move(unit), options);
  Obtained out = flight->result.get();
  if (joined) counters_.saved(out.image->facts.compile_ms);
  if (joined && out.outcome == Outcome::compiled) out.outcome = Outcome::waited;
  return out;
}

void Pipeline::run_flight(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept {
  take_off(unit, options, flight);
  lifetime_.save_sometimes();
  // Last: the pipeline may be gone the moment that its destructor sees zero.
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  --state.running;
  state.landed.notify_all();
}

/// The host's lock on this key; null: compile without it. Throws what the holder's compile failed with, when
/// it was waited for.
std::shared_ptr<cache::Flight> Pipeline::take_host_lock(const Unit& unit) {
  using End = cache::FlightFile::End;
  const auto file = flight_file();
  if (!file) return nullptr;
  cache::FlightFile::Taken taken;
  const auto patience = seconds(config_.compile_deadline_s()) + kFlightGrace;
  std::exception_ptr theirs;
  std::optional<Stopwatch> waiting;
  const auto wait_began = [&] {
    if (!waiting) tell(KILN_EVENT_WAIT_STARTED, unit);
    if (!waiting) waiting.emplace();
  };
  try {
    do {  // an error that does not hold for us is waited for no more: the next wait finds it there already
      taken = file->take(unit.made.key, base::Deadline::after(patience), &leaving_, wait_began,
                         hint(unit.instantiation));
      theirs =
          taken.end == End::failed ? decode_flight_error(taken.error, config_.compile_deadline_s()) : nullptr;
    } while (taken.end == End::failed && !theirs);
  } catch (const Error& error) {
    if (waiting) tell(KILN_EVENT_WAIT_FINISHED, unit, {.milliseconds = waiting->ms()});
    base::warn_once("flight", std::string(error.what()) + "; compiling without it");
    return nullptr;
  }
  if (waiting) tell(KILN_EVENT_WAIT_FINISHED, unit, {.milliseconds = waiting->ms()});
  switch (taken.end) {
    case End::taken:
      break;
    case End::timed_out:
      ++counters_.flight_timeouts;
      break;
    case End::left:
      ++counters_.convoy_left;
      break;
    case End::failed:
      ++counters_.waits;
      std::rethrow_exception(theirs);
    case End::cancelled:
      throw Error(Errc::deadline, "the service is gone: " + hint(unit.instantiation) + " was not waited for");
  }
  return std::move(taken.flight);
}

/// The host's lock goes with the record to the publisher, which holds it until the commit; in every other
/// case it is back before this returns.
void Pipeline::take_off(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept {
  std::shared_ptr<cache::Flight> host;
  try {
    host = take_host_lock(unit);
    if (flight_file()) {
      ObtainOptions look = options;
      look.deadline = base::Deadline::never();  // the caller's own: he may have gone, the flight goes on
      // Look again even when nobody was waited for: another process may have published between our look and
      // our lock.
      if (auto found = from_disk(unit, look, false)) {
        ++counters_.waits;
        counters_.saved(found->image->facts.compile_ms);
        found->outcome = Outcome::waited;
        land(unit, flight, *found);
        return;
      }
    }
    FromTier fleet = ask_tier(unit, options, flight);
    if (fleet.found) {
      // A fresh node fetches faster than its disk syncs: who is not waited for waits for the disk.
      const WhenFull when_full =
          flight.urgency == compile::Urgency::ahead ? WhenFull::wait : options.when_full;
      publish(unit, fleet.found->image->key, std::move(fleet.record), {}, std::move(host), when_full, {});
      land(unit, flight, *fleet.found);
      return;
    }
    if (!flight.may_compile) refuse(unit.instantiation);
    warm_up();
    if (host) host->compiling(hint(unit.instantiation));
    cache::Record record;
    const Obtained obtained = compile_now(unit, record, flight.urgency);
    // Before the callers are answered, so that their flush() knows of it.
    auto afterwards = to_tier(unit, std::move(fleet.lease), obtained, options);
    publish(unit, unit.made.key, std::move(record), obtained.unpublishable, std::move(host),
            options.when_full, std::move(afterwards));
    land(unit, flight, obtained);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    const Lasting lasts = lasting(unit.closure, error);
    if (host && lasts != Lasting::no && !is_local(error))
      host->failed(encode_flight_error(error, config_.compile_deadline_s(), cache::BoardEntry::kErrorLimit));
    host.reset();
    crash(unit, flight, error, lasts);
  }
}

void Pipeline::land(const Unit& unit, Flight& flight, const Obtained& obtained) noexcept {
  // What cannot be published is not kept either: the key does not cover it, so the next ask must compile
  // again.
  if (obtained.unpublishable.empty()) remember(obtained.image);
  {
    State& state = state_.get();
    std::lock_guard lock(state.mutex);
    state.flights.erase(unit.made.key);
    state.resting.erase(unit.made.key);
  }
  flight.promise.set_value(obtained);
}

void Pipeline::crash(const Unit& unit, Flight& flight, std::exception_ptr error, Lasting lasts) noexcept {
  {
    State& state = state_.get();
    std::lock_guard lock(state.mutex);
    if (lasts == Lasting::until_changed) state.refused[unit.made.key] = error;
    if (lasts == Lasting::pause) {
      Rest& rest = state.resting[unit.made.key];
      rest.error = error;
      rest.pause = std::clamp(rest.pause * 2, kFirstRest, kLastRest);
      rest.until = base::Clock::now() + rest.pause;
    }
    state.flights.erase(unit.made.key);
  }
  flight.promise.set_exception(std::move(error));
}

}  // namespace kiln::runtime
