// Step 3 of the path inside this process: one flight for each key. All callers with that key wait
// for its result.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>

#include "base/process.hpp"
#include "runtime/path/memory.hpp"

namespace kiln::runtime {

/// Steps 2 to 6 for one key, on a thread of its own.
struct Flight {
  Flight(compile::Urgency how_urgent, bool compiles) : urgency(how_urgent), may_compile(compiles) {}
  std::atomic<compile::Urgency> urgency;
  const bool may_compile;  ///< false: it ends with the tier
  std::promise<Obtained> promise;
  std::shared_future<Obtained> result = promise.get_future().share();
};

/// Thread-safe. A forked child starts with none: it has none of the threads that end a flight.
class Flights {
 public:
  /// Ends the flight by `land` or `crash`.
  using Work = std::function<void(Flight&)>;

  /// `on_hurry` is called when a caller joins a flight that was started ahead of need.
  Flights(ServiceState& state, ImageMemory& memory, std::function<void()> on_hurry)
      : memory_(memory), counters_(state.counters), events_(state.events), on_hurry_(std::move(on_hurry)) {}

  /// Joins the flight of this key, or starts one, whose thread does `work`. So each waiter keeps its own
  /// deadline. Throws the error that the flight ended with.
  Obtained fly(const Unit& unit, const ObtainOptions& options, const Work& work);
  void land(const Unit& unit, Flight& flight, const Obtained& obtained) noexcept;
  void crash(const Unit& unit, Flight& flight, std::exception_ptr error, Lasting lasts) noexcept;
  /// Waits until no flight is under way. The owner calls it before anything that `work` uses is destroyed.
  void wait_for_all();

 private:
  struct Seat {
    std::shared_ptr<Flight> flight;
    bool joined = true;
  };
  std::optional<Obtained> take_seat(const Unit& unit, const ObtainOptions& options, Seat& seat);
  void start(const std::shared_ptr<Flight>& flight, const Work& work);
  void erase(const Key& key) noexcept;
  void ended() noexcept;

  struct State {
    std::mutex mutex;  // guards what follows
    std::map<Key, std::shared_ptr<Flight>> flights;
    int running = 0;
    std::condition_variable landed;
  };
  ImageMemory& memory_;
  Counters& counters_;
  const Events events_;
  const std::function<void()> on_hurry_;
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
