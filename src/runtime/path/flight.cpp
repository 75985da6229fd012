#include "runtime/path/flight.hpp"

#include <pthread.h>

#include <thread>

#include "base/no_signals.hpp"
#include "base/nvtx.hpp"

namespace kiln::runtime {
namespace {

/// True when the flight ended at the tier, which had no record.
bool ended_without_compiling(const std::shared_future<Obtained>& result) try {
  static_cast<void>(result.get());
  return false;
} catch (const Error& error) {
  return error.code() == Errc::not_ready;
} catch (...) {
  return false;
}

bool wait(const std::shared_future<Obtained>& result, base::Deadline deadline) {
  if (deadline.at() != base::Clock::time_point::max())
    return result.wait_until(deadline.at()) == std::future_status::ready;
  result.wait();
  return true;
}

}  // namespace

/// Takes a seat in the flight of this key, which is made if there is none. Returns an image and no seat when
/// a flight left one in memory after the caller's look into it.
std::optional<Obtained> Flights::take_seat(const Unit& unit, const ObtainOptions& options, Seat& seat) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (const auto found = state.flights.find(unit.made.key); found != state.flights.end()) {
    seat.flight = found->second;
    return std::nullopt;
  }
  // A flight leaves its image or its error in memory before it leaves the map.
  if (auto landed = memory_.find(unit.made.key); landed && !options.rejected.contains(unit.made.key)) {
    ++counters_.waits;
    count_saved(counters_, landed->facts.compile_ms);
    return Obtained{std::move(landed), Outcome::waited, {}};
  }
  memory_.throw_failure(unit.made.key);
  seat.flight = std::make_shared<Flight>(options.urgency, options.permission.compile);
  seat.joined = false;
  state.flights.emplace(unit.made.key, seat.flight);
  ++state.running;
  return std::nullopt;
}

void Flights::start(const std::shared_ptr<Flight>& flight, const Work& work) {
  const auto run = [this, flight, work] {
    work(*flight);
    ended();
  };
  try {
    const base::NoSignals inherited_by_the_thread;
    std::thread([run] {
      ::pthread_setname_np(::pthread_self(), "kiln-flight");  // or it would keep its starter's name
      run();
    }).detach();
  } catch (const std::exception&) {
    run();  // no thread could be started: run in this one
  }
}

Obtained Flights::fly(const Unit& unit, const ObtainOptions& options, const Work& work) {
  Seat seat;
  if (auto landed = take_seat(unit, options, seat)) return std::move(*landed);
  const auto& [flight, joined] = seat;
  if (joined) {
    ++counters_.waits;
    if (options.urgency == compile::Urgency::caller &&
        flight->urgency.exchange(compile::Urgency::caller) != compile::Urgency::caller)
      on_hurry_();
    tell(events_, KILN_EVENT_WAIT_STARTED, unit.instantiation);
  } else {
    start(flight, work);
  }
  const base::NvtxRange range([&] { return "kiln wait " + hint(unit.instantiation); });
  const Stopwatch watch;
  const bool ready = wait(flight->result, options.deadline);
  if (joined) tell(events_, KILN_EVENT_WAIT_FINISHED, unit.instantiation, {.milliseconds = watch.ms()});
  if (!ready)
    throw Error(Errc::deadline, "the deadline passed while " + hint(unit.instantiation) +
                                    " was being compiled (the compile goes on)");
  if (joined && options.permission.compile && !flight->may_compile && ended_without_compiling(flight->result))
    return fly(unit, options, work);
  Obtained out = flight->result.get();
  if (joined) count_saved(counters_, out.image->facts.compile_ms);
  if (joined && out.outcome == Outcome::compiled) out.outcome = Outcome::waited;
  return out;
}

void Flights::land(const Unit& unit, Flight& flight, const Obtained& obtained) noexcept {
  // An image that cannot be published is not kept, either: the key does not cover it, so the next call must
  // compile again.
  if (obtained.unpublishable.empty()) memory_.keep(obtained.image);
  memory_.end_rest(unit.made.key);
  erase(unit.made.key);
  flight.promise.set_value(obtained);
}

void Flights::crash(const Unit& unit, Flight& flight, std::exception_ptr error, Lasting lasts) noexcept {
  memory_.keep_failure(unit.made.key, error, lasts);
  erase(unit.made.key);
  flight.promise.set_exception(std::move(error));
}

void Flights::erase(const Key& key) noexcept {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  state.flights.erase(key);
}

/// This is the last call in a flight's thread: the owner may be gone as soon as `wait_for_all` sees zero.
void Flights::ended() noexcept {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  --state.running;
  state.landed.notify_all();
}

void Flights::wait_for_all() {
  State& state = state_.get();
  std::unique_lock lock(state.mutex);
  state.landed.wait(lock, [&] { return state.running == 0; });
}

}  // namespace kiln::runtime
