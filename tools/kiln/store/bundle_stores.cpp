#include "tools/kiln/store/bundle_stores.hpp"

#include <algorithm>
#include <set>

#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "compile/key/tuned_choice.hpp"
#include "runtime/state/places.hpp"
#include "tools/kiln/store/bundled_entry.hpp"

namespace kiln::cli {
namespace {

constexpr auto kReadWait = std::chrono::seconds(10);  // longest wait for the gate

/// Throws Malformed for facts of another version of kiln.
bool is_wanted(const std::string& facts, const BundleStores::Wanted& wanted) {
  if (compile::is_choice(facts)) {
    const compile::TunedChoice choice = compile::decode_choice(facts);
    return wanted(choice.template_name, choice.arch);
  }
  const compile::Facts image = compile::decode_facts(facts);
  return wanted(image.unit.substr(0, image.unit.find('@')), image.arch);
}

}  // namespace

BundleStores::BundleStores(const runtime::Config& config)
    : places_(view_places(config).places), stores_(runtime::open_layers(config)) {
  for (const auto& store : {places_.readable, places_.writable})
    if (store) stores_.push_back(store);
}

std::vector<Key> BundleStores::keys(const Wanted& wanted) {
  std::set<Key> out;
  other_version_ = 0;
  damaged_.clear();
  for (const auto& store : stores_) {
    std::uint64_t shown = 0;
    store->list([&](const cache::Entry& entry) {
      ++shown;
      if (cache::is_blob(entry.facts)) return;
      try {
        if (is_wanted(entry.facts, wanted)) out.insert(entry.key);
      } catch (const base::Malformed&) {
        ++other_version_;
      }
    });
    // More entries in the store than in the listing may mean damage. Engines that write meanwhile can cause
    // the difference, too, so `verify` decides.
    if (store->stats().entries > shown)
      for (const cache::DamageReport& damage : store->verify().damaged) damaged_.push_back(damage.key);
  }
  std::erase_if(damaged_, [&](const std::string& hex) {
    const auto key = Key::from_hex(hex);
    return key && out.contains(*key);  // read successfully from this or another store
  });
  return {out.begin(), out.end()};
}

std::vector<Key> BundleStores::choices(const Wanted& wanted) {
  std::set<Key> out;
  for (const auto& store : stores_)
    store->list([&](const cache::Entry& entry) {
      try {
        if (compile::is_choice(entry.facts) && is_wanted(entry.facts, wanted)) out.insert(entry.key);
      } catch (const base::Malformed&) {  // written by another version of kiln
      }
    });
  return {out.begin(), out.end()};
}

std::vector<Key> BundleStores::blobs() {
  std::set<Key> out;
  for (const auto& store : stores_)
    store->list([&](const cache::Entry& entry) {
      if (cache::is_blob(entry.facts)) out.insert(entry.key);
    });
  return {out.begin(), out.end()};
}

cache::Peeked<cache::Record> BundleStores::record_in(cache::Store& store, const Key& key) const {
  auto record = store.peek(key, base::Deadline::after(kReadWait));
  // A tuned choice in the writable store overrides the same choice in a layer.
  if (record && compile::is_choice(record->facts) && places_.writable)
    if (auto own = places_.writable->peek(key, base::Deadline::after(kReadWait))) record = std::move(own);
  return record;
}

cache::Peeked<cache::Record> BundleStores::read(const Key& key) {
  return read_first(stores_, [&](cache::Store& store) -> cache::Peeked<cache::Record> {
    auto record = record_in(store, key);
    if (!record) return {{}, record.miss};
    return {as_bundled(std::move(*record))};
  });
}

cache::Peeked<cache::Record> BundleStores::record(const Key& key) {
  return read_first(stores_, [&](cache::Store& store) { return record_in(store, key); });
}

}  // namespace kiln::cli
