// The needs of one compile, and its urgency.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/deadline.hpp"
#include "closure/closure.hpp"
#include "instantiate/instantiate.hpp"

namespace kiln::compile {

/// A caller that waits for its kernel goes before work ahead of need (prewarm, prefetch).
enum class Urgency { caller, ahead };

struct Demand {
  std::string subject{};       ///< template and arch: the name under which its peak memory is remembered
  std::string what{};          ///< for people: "rms_norm T=bf16 H=4096 for sm_90a"
  std::uint64_t memory = 0;    ///< guess of the bytes that it takes; peaks of earlier compiles replace it
  std::uint64_t at_least = 0;  ///< bytes to reserve in any case: it was killed with less
  /// Time limit from the start of the compile; waiting for its turn is not counted.
  base::Clock::duration compile_limit = base::Clock::duration::max();
  base::Deadline give_up = base::Deadline::never();  ///< limit of waiting for its turn
  /// May be raised while the compile waits; then call WorkerPool::reconsider(). Null: caller.
  const std::atomic<Urgency>* urgency = nullptr;

  Urgency now() const noexcept {
    return urgency ? urgency->load(std::memory_order_relaxed) : Urgency::caller;
  }
};

/// The demand of a unit. Its memory is guessed from the included files: 110 MB for the compiler, and 30 times
/// the headers' bytes (CUB's 6.6 MB take 200 MB).
Demand demand_of(const source::Instantiation& unit, const source::Closure& closure,
                 base::Clock::duration compile_limit);

}  // namespace kiln::compile
