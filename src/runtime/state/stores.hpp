// The stores of one service, each opened when it is first needed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/lazy.hpp"
#include "cache/flight/flight.hpp"
#include "runtime/state/places.hpp"

namespace kiln::runtime {

/// Thread-safe. A forked child keeps what was opened; stores and flight files know which process opened them.
class Stores {
 public:
  /// `on_opened` is called with the directory of the writable store when `places` has opened it.
  Stores(const Config& config, std::function<void(const std::string& directory)> on_opened)
      : config_(config), on_opened_(std::move(on_opened)) {}

  const Places& places();
  /// True when places() was called before. Opens nothing.
  bool places_are_known() const noexcept { return places_.made() != nullptr; }
  /// The writable store; null when no place for it was found.
  std::shared_ptr<cache::Store> writable() { return places().writable; }
  /// The read-only stores that are asked before the writable one, in order.
  const std::vector<std::shared_ptr<cache::Store>>& layers();
  /// The stores that are only read: the layers, then a store that is read in place of the writable one.
  std::vector<std::shared_ptr<cache::Store>> read_only();
  /// All stores that a lookup asks, in its order: the read-only stores, then the writable store.
  std::vector<std::shared_ptr<cache::Store>> asked();
  /// The host's flight file beside the writable store; null without a store that this process may write.
  std::shared_ptr<cache::FlightFile> flight_file();

  /// Uses `store` and nothing else: no layers, no step down, no call of `on_opened`. REQUIRES: no store was
  /// asked for yet.
  void use_only(std::shared_ptr<cache::Store> store);
  /// Uses `places` ({} for none) beside the configured layers. REQUIRES: no store was asked for yet.
  void use_places(Places places);

 private:
  const Config& config_;
  const std::function<void(const std::string&)> on_opened_;
  base::Lazy<Places> places_;
  base::Lazy<std::vector<std::shared_ptr<cache::Store>>> layers_;
  base::Lazy<std::shared_ptr<cache::FlightFile>> flight_file_;
};

}  // namespace kiln::runtime
