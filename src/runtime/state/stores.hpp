// The stores of one service, each opened when it is first needed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/lazy.hpp"
#include "cache/flight/flight.hpp"
#include "runtime/state/places.hpp"

namespace kiln::runtime {

/// Thread-safe. A forked child keeps what was opened: stores and flight files know whose they are.
class Stores {
 public:
  /// `on_opened` is told the directory of the writable store when it has been opened by `places`.
  Stores(const Config& config, std::function<void(const std::string& directory)> on_opened)
      : config_(config), on_opened_(std::move(on_opened)) {}

  const Places& places();
  /// Whether `places` was asked before. Opens nothing.
  bool places_are_known() const noexcept { return places_.made() != nullptr; }
  /// Null when no place for one was found.
  std::shared_ptr<cache::Store> writable() { return places().writable; }
  /// The read-only stores that are asked before the writable one, in order.
  const std::vector<std::shared_ptr<cache::Store>>& layers();
  /// Those that are only read: the layers, then a store that is read in the writable one's place.
  std::vector<std::shared_ptr<cache::Store>> read_only();
  /// All that a lookup asks, in its order: the read-only ones, then the writable one.
  std::vector<std::shared_ptr<cache::Store>> asked();
  /// The host's flight file beside the writable store; null without a store that this process may write.
  std::shared_ptr<cache::FlightFile> flight_file();

  /// `store` and nothing else: no layers, no step down, nobody is told of it. REQUIRES: nothing was asked for
  /// yet, as use_places.
  void use_only(std::shared_ptr<cache::Store> store);
  /// `places` (none: {}) beside the configured layers.
  void use_places(Places places);

 private:
  const Config& config_;
  const std::function<void(const std::string&)> on_opened_;
  base::Lazy<Places> places_;
  base::Lazy<std::vector<std::shared_ptr<cache::Store>>> layers_;
  base::Lazy<std::shared_ptr<cache::FlightFile>> flight_file_;
};

}  // namespace kiln::runtime
