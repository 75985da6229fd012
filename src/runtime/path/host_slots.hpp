// The host's compile slots (cache/flight/compile_slots.hpp) as the worker pool sees them.
#pragma once

#include <functional>
#include <memory>

#include "cache/flight/flight.hpp"
#include "compile/pool/admission.hpp"

namespace kiln::runtime {

/// Without a flight file, or when it fails, every process may compile at once: the lock only saves work.
class HostSlots final : public compile::HostSlots {
 public:
  /// `file` may return null. `count` returns how many slots this process may use. Both are called at each
  /// use, and not before.
  HostSlots(std::function<std::shared_ptr<cache::FlightFile>()> file, std::function<int()> count)
      : file_(std::move(file)), count_(std::move(count)) {}
  std::unique_ptr<Request> request(compile::Urgency urgency) override;
  std::shared_ptr<void> show_waiting(const compile::Demand& demand) noexcept override;

 private:
  std::function<std::shared_ptr<cache::FlightFile>()> file_;
  std::function<int()> count_;
};

}  // namespace kiln::runtime
