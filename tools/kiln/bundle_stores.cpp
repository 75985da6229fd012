#include "bundle_stores.hpp"

#include <algorithm>
#include <set>

#include "base/wire.hpp"
#include "bundle_entry.hpp"
#include "runtime/places.hpp"

namespace kiln::cli {
namespace {

constexpr auto kReadWait = std::chrono::seconds(10);  // for the gate

}  // namespace

BundleStores::BundleStores(const runtime::Config& config)
    : places_(view_places(config).places), stores_(runtime::open_layers(config)) {
  for (const auto& store : {places_.readable, places_.writable})
    if (store) stores_.push_back(store);
}

std::vector<Key> BundleStores::keys(const Wanted& wanted) {
  std::set<Key> out;
  for (const auto& store : stores_) {
    std::uint64_t shown = 0;
    store->list([&](const cache::Entry& entry) {
      ++shown;
      try {
        if (wanted(compile::decode_facts(entry.facts))) out.insert(entry.key);
      } catch (const base::Malformed&) {
        ++other_version_;
      }
    });
    // The store has more than a listing shows. Beside live engines that alone says nothing.
    if (store->stats().entries > shown)
      for (const cache::DamageReport& damage : store->verify().damaged) damaged_.push_back(damage.key);
  }
  std::erase_if(damaged_, [&](const std::string& hex) {
    const auto key = Key::from_hex(hex);
    return key && out.contains(*key);  // read, from here or from another store
  });
  return {out.begin(), out.end()};
}

std::optional<bundle::Entry> BundleStores::read(const Key& key) {
  for (const auto& store : stores_)
    if (auto record = store->peek(key, base::Deadline::after(kReadWait)))
      if (auto entry = entry_of(key, std::move(*record))) return entry;
  return std::nullopt;
}

}  // namespace kiln::cli
