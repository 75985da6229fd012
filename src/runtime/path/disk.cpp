#include "runtime/path/disk.hpp"

#include "base/log.hpp"
#include "base/wire.hpp"

namespace kiln::runtime {
namespace {

/// A read that waits this long at the gate is a miss: a stopped writer of another process must not
/// stop this one.
constexpr auto kReadPatience = std::chrono::seconds(5);

base::Deadline patience_of(const ObtainOptions& options) {
  return earlier(options.deadline, base::Deadline::after(kReadPatience));
}

void count_miss(Counters& counters, cache::Miss miss, bool has_store) {
  using cache::Miss;
  if (!has_store && miss == Miss::absent)
    ++counters.miss_no_store;
  else if (miss == Miss::absent)
    ++counters.miss_absent;
  else if (miss == Miss::damaged)
    ++counters.miss_damaged;
  else if (miss == Miss::other_key_text)
    ++counters.miss_other_key_text;
  else if (miss == Miss::gate_timeout)
    ++counters.miss_gate_timeout;
  else
    ++counters.miss_unreadable;
}

/// The record of exactly this key; `miss` says why there is none.
std::optional<Obtained> read(cache::Store& store, const Unit& unit, base::Deadline deadline,
                             cache::Miss& miss) {
  cache::GetResult got = store.get(unit.made.key, unit.made.text, deadline);
  if (got.record) {
    try {
      auto image = std::make_shared<StoredImage>();
      image->key = unit.made.key;
      image->facts = compile::decode_facts(got.record->facts);
      image->bytes = std::move(got.record->image);
      return Obtained{std::move(image), Outcome::disk, {}};
    } catch (const base::Malformed&) {
      got.miss = cache::Miss::damaged;  // facts of another version of kiln
    }
  }
  miss = got.miss;
  return std::nullopt;
}

void warn_of_damaged_layer(const std::string& directory) {
  base::warn_once("damaged layer " + directory,
                  "cache layer '" + directory +
                      "' has records that are damaged or of another version of kiln, so their kernels are "
                      "compiled again; write the layer again with 'kiln prewarm --layer'");
}

}  // namespace

std::optional<Obtained> DiskLookup::find(const Unit& unit, const ObtainOptions& options, Counted counted) {
  if (!options.rejected.contains(unit.made.key) && state_.files.toolkit().has_compiler()) {
    if (auto found = find_own(unit, options, counted)) return found;
  } else if (counted == Counted::yes && !state_.stores.writable()) {
    ++state_.counters.miss_no_store;
  }
  auto foreign = find_foreign(unit, options);
  if (foreign) count_hit(state_.counters.foreign_toolchain, *foreign, counted);
  return foreign;
}

std::optional<Obtained> DiskLookup::find_own(const Unit& unit, const ObtainOptions& options,
                                             Counted counted) {
  const base::Deadline patience = patience_of(options);
  // One miss has one reason: the first one that is more than absence, from whichever store.
  cache::Miss reason = cache::Miss::absent, miss = cache::Miss::absent;
  const auto from_layer = [&](cache::Store& layer) {
    auto found = read(layer, unit, patience, miss);
    if (found) {
      found->outcome = Outcome::layer;
      count_hit(state_.counters.layer_hits, *found, counted);
      return found;
    }
    if (reason == cache::Miss::absent) reason = miss;
    if (miss == cache::Miss::damaged) warn_of_damaged_layer(layer.directory());
    return found;
  };
  for (const auto& layer : state_.stores.layers())
    if (auto found = from_layer(*layer)) return found;
  const auto& [writable, readable] = state_.stores.places();
  if (readable)
    if (auto found = from_layer(*readable)) return found;
  if (writable) {
    if (auto found = read(*writable, unit, patience, miss)) {
      count_hit(state_.counters.disk_hits, *found, counted);
      return found;
    }
    if (reason == cache::Miss::absent) reason = miss;
  }
  if (counted == Counted::yes) count_miss(state_.counters, reason, writable != nullptr);
  return std::nullopt;
}

std::optional<Obtained> DiskLookup::find_foreign(const Unit& unit, const ObtainOptions& options) {
  if (!foreign_.are_taken(unit, options.permission)) return std::nullopt;
  std::vector<Obtained> candidates;
  const base::Deadline patience = patience_of(options);
  const auto look_in = [&](cache::Store& store, Outcome outcome) {
    for (cache::Record& record : store.find(unit.made.key.specialisation, patience)) {
      if (options.rejected.contains(record.key) || !foreign_.allows(record.key)) continue;
      if (auto image = ForeignRecords::image_of(unit, std::move(record)))
        candidates.push_back({std::move(image), outcome, {}});
    }
  };
  for (const auto& layer : state_.stores.layers()) look_in(*layer, Outcome::layer);
  const auto& [writable, readable] = state_.stores.places();
  if (readable) look_in(*readable, Outcome::layer);
  if (writable) look_in(*writable, Outcome::disk);
  return ForeignRecords::best(std::move(candidates));
}

void DiskLookup::count_hit(Counters::Count& hits, const Obtained& found, Counted counted) {
  if (counted == Counted::no) return;
  ++hits;
  count_saved(state_.counters, found.image->facts.compile_ms);
}

}  // namespace kiln::runtime
