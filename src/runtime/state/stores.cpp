#include "runtime/state/stores.hpp"

#include "base/log.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {

const Places& Stores::places() {
  return places_.get([&] {
    Places opened = open_store(config_);
    if (opened.writable) on_opened_(opened.writable->directory());
    return opened;
  });
}

const std::vector<std::shared_ptr<cache::Store>>& Stores::layers() {
  return layers_.get([&] { return open_layers(config_); });
}

std::vector<std::shared_ptr<cache::Store>> Stores::read_only() {
  std::vector<std::shared_ptr<cache::Store>> out = layers();
  if (const auto& readable = places().readable) out.push_back(readable);
  return out;
}

std::vector<std::shared_ptr<cache::Store>> Stores::asked() {
  std::vector<std::shared_ptr<cache::Store>> out = read_only();
  if (const auto own = writable()) out.push_back(own);
  return out;
}

std::shared_ptr<cache::FlightFile> Stores::flight_file() {
  return flight_file_.get([&]() -> std::shared_ptr<cache::FlightFile> {
    const auto store = writable();
    if (!store || !store->writable()) return nullptr;
    try {
      return cache::FlightFile::open(
          {.store_identity = store->identity(), .store_place = store->directory() + "/v1"});
    } catch (const Error& error) {
      base::warn_once(
          "flight", std::string(error.what()) + "; processes of this host may compile the same kernel twice");
      return nullptr;
    }
  });
}

void Stores::use_only(std::shared_ptr<cache::Store> store) {
  layers_.set({});
  places_.set({std::move(store), nullptr});
}

void Stores::use_places(Places places) { places_.set(std::move(places)); }

}  // namespace kiln::runtime
