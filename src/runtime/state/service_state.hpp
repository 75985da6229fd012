// The state that a service keeps for all its calls, in all steps of the path.
#pragma once

#include <memory>
#include <string>

#include "runtime/config/config.hpp"
#include "runtime/state/counters.hpp"
#include "runtime/state/events.hpp"
#include "runtime/state/files.hpp"
#include "runtime/state/lifetime.hpp"
#include "runtime/state/stores.hpp"

namespace kiln::runtime {

/// Every member is thread-safe.
struct ServiceState {
  /// `settings` must outlive the state. `memo_file`: see Files.
  ServiceState(const Config& settings, const std::string& memo_file, Events listener)
      : config(settings),
        events(listener),
        files(settings, memo_file),
        stores(settings, [this](const std::string& directory) { lifetime.count_in(directory); }) {
    lifetime.ask_where([this] { return stores.places_are_known() ? std::string() : existing_store(config); });
  }
  ServiceState(const ServiceState&) = delete;
  ServiceState& operator=(const ServiceState&) = delete;

  const Config& config;
  const std::shared_ptr<Counters> shared_counters = std::make_shared<Counters>();
  Counters& counters = *shared_counters;
  const Events events;
  Files files;
  Stores stores;
  Lifetime lifetime{counters};
};

}  // namespace kiln::runtime
