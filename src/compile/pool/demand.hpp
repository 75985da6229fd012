// What one compile asks of the machine, and how much it matters.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/deadline.hpp"
#include "closure/closure.hpp"
#include "instantiate/instantiate.hpp"

namespace kiln::compile {

/// A caller who waits for his kernel goes before work ahead of need (prewarm, prefetch).
enum class Urgency { caller, ahead };

struct Demand {
  std::string subject{};     ///< what its memory is remembered under: template and arch
  std::string what{};        ///< for people: "rms_norm T=bf16 H=4096 for sm_90a"
  std::uint64_t memory = 0;  ///< bytes that it will take, guessed; what was learnt of the subject counts more
  std::uint64_t at_least = 0;  ///< bytes to reserve in any case: it was killed with less
  /// How long it may run once it has started; waiting for its turn is not counted.
  base::Clock::duration compile_limit = base::Clock::duration::max();
  base::Deadline give_up = base::Deadline::never();  ///< of waiting for its turn
  /// May be raised while it waits (then call WorkerPool::reconsider). Null: caller.
  const std::atomic<Urgency>* urgency = nullptr;

  Urgency now() const noexcept {
    return urgency ? urgency->load(std::memory_order_relaxed) : Urgency::caller;
  }
};

/// Its memory is guessed from what it includes: 110 MB for the compiler, and 30 times the headers' bytes
/// (CUB's 6.6 MB take 200 MB).
Demand demand_of(const source::Instantiation& unit, const source::Closure& closure,
                 base::Clock::duration compile_limit);

}  // namespace kiln::compile
