// Steps 2 and 6 of the path: what the store has, whose record may be served, and what is published.
#include <algorithm>
#include <charconv>

#include "base/log.hpp"
#include "base/wire.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {
namespace {

/// A read that cannot pass the gate for so long is a miss: a stopped writer of another process must not stop
/// this one.
constexpr auto kReadPatience = std::chrono::seconds(5);

/// "13.0" as a number to sort by.
double version_number(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
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

}  // namespace

const std::vector<std::shared_ptr<cache::Store>>& Pipeline::layers() {
  return layers_.get([&] { return open_layers(config_); });
}

void Pipeline::use_only(std::shared_ptr<cache::Store> store) {
  layers_.set({});
  places_.set({std::move(store), nullptr});
}

void Pipeline::use_places(Places places) { places_.set(std::move(places)); }

/// The record of exactly this key; `miss` says why not.
std::optional<Obtained> Pipeline::from_store(cache::Store& store, const Unit& unit, base::Deadline deadline,
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

std::optional<Obtained> Pipeline::from_disk(const Unit& unit, const ObtainOptions& options,
                                            bool count_misses) {
  if (!options.rejected.contains(unit.made.key) && toolkit().has_compiler()) {
    const auto patience = earlier(options.deadline, base::Deadline::after(kReadPatience));
    // One miss has one reason: the first that is more than absence, whichever place it comes from.
    cache::Miss reason = cache::Miss::absent, miss = cache::Miss::absent;
    const auto from_layer = [&](cache::Store& layer) {
      auto found = from_store(layer, unit, patience, miss);
      if (found) {
        found->outcome = Outcome::layer;
        if (count_misses) ++counters_.layer_hits, counters_.saved(found->image->facts.compile_ms);
        return found;
      }
      if (reason == cache::Miss::absent) reason = miss;
      if (miss == cache::Miss::damaged)
        base::warn_once(
            "damaged layer " + layer.directory(),
            "cache layer '" + layer.directory() +
                "' has records that are damaged or of another version of kiln; they are made anew. "
                "Write it again with 'kiln prewarm --layer'");
      return found;
    };
    for (const auto& layer : layers())
      if (auto found = from_layer(*layer)) return found;
    const auto& [writable, readable] = places();
    if (readable)
      if (auto found = from_layer(*readable)) return found;
    if (writable) {
      if (auto found = from_store(*writable, unit, patience, miss)) {
        if (count_misses) ++counters_.disk_hits, counters_.saved(found->image->facts.compile_ms);
        return found;
      }
      if (reason == cache::Miss::absent) reason = miss;
    }
    if (count_misses) count_miss(counters_, reason, writable != nullptr);
  } else if (count_misses && !store()) {
    ++counters_.miss_no_store;
  }
  auto foreign = from_foreign(unit, options);
  if (foreign && count_misses)
    ++counters_.foreign_toolchain, counters_.saved(foreign->image->facts.compile_ms);
  return foreign;
}

/// DESIGN 4: on a sealed service or a slim host, records of the same specialisation made by another
/// toolchain, by NVRTC version, then age; never one whose project files were reached only through the
/// toolkit.
std::optional<Obtained> Pipeline::from_foreign(const Unit& unit, const ObtainOptions& options) {
  if (!takes_foreign(unit, options)) return std::nullopt;
  std::vector<Obtained> candidates;
  const auto patience = earlier(options.deadline, base::Deadline::after(kReadPatience));
  const auto look_in = [&](cache::Store& store, Outcome outcome) {
    for (auto& [key, record] : store.find(unit.made.key.specialisation, patience)) {
      if (options.rejected.contains(key) || !is_of_chosen_toolchain(key)) continue;
      if (auto image = as_foreign(unit, key, record)) candidates.push_back({std::move(image), outcome, {}});
    }
  };
  for (const auto& layer : layers()) look_in(*layer, Outcome::layer);
  const auto& [writable, readable] = places();
  if (readable) look_in(*readable, Outcome::layer);
  if (writable) look_in(*writable, Outcome::disk);
  return best_foreign(std::move(candidates));
}

bool Pipeline::takes_foreign(const Unit& unit, const ObtainOptions& options) {
  const std::string& rule = config_.get("toolchain");
  const bool slim =
      !toolkit().has_compiler() || (toolkit().include_dirs.empty() && !unit.closure.missing.empty());
  return rule != "own" && (!rule.empty() || slim || !options.may_compile || options.any_toolchain);
}

bool Pipeline::is_of_chosen_toolchain(const Key& key) const {
  const std::string& rule = config_.get("toolchain");
  return rule.empty() || rule == "any" || key.toolchain.hex().compare(0, rule.size(), rule) == 0;
}

std::shared_ptr<const StoredImage> Pipeline::as_foreign(const Unit& unit, const Key& key,
                                                        cache::Record& record) const {
  const auto section = compile::toolchain_section(record.key_text);
  if (std::string_view(record.key_text).substr(0, section) != unit.made.specialisation_text()) return nullptr;
  try {
    auto image = std::make_shared<StoredImage>();
    image->key = key;
    image->facts = compile::decode_facts(record.facts);
    if (image->facts.project_header_through_toolkit) return nullptr;
    image->bytes = std::move(record.image);
    return image;
  } catch (const base::Malformed&) {
    return nullptr;
  }
}

std::optional<Obtained> Pipeline::best_foreign(std::vector<Obtained> candidates) {
  if (candidates.empty()) return std::nullopt;
  // Stable: of two places with the same record, the one that is asked first.
  std::stable_sort(candidates.begin(), candidates.end(), [](const Obtained& a, const Obtained& b) {
    const compile::Facts &fa = a.image->facts, &fb = b.image->facts;
    const double va = version_number(fa.nvrtc_version), vb = version_number(fb.nvrtc_version);
    return va != vb ? va > vb : fa.created_s > fb.created_s;
  });
  return std::move(candidates.front());
}

void Pipeline::publish(const Unit& unit, const Key& key, cache::Record record,
                       const std::string& unpublishable, std::shared_ptr<cache::Flight> host,
                       WhenFull when_full, Publication::Afterwards afterwards) noexcept try {
  if (!unpublishable.empty()) {
    ++counters_.unpublishable;
    base::warn_once("unpublishable " + unit.instantiation.unit + unpublishable,
                    hint(unit.instantiation) + " was compiled but not cached: " + unpublishable);
    return;
  }
  if (auto opened = store()) {
    publisher_.hand_over({key, std::move(record), hint(unit.instantiation), std::move(opened),
                          std::move(host), told_.events, std::move(afterwards)},
                         when_full);
  } else if (afterwards) {
    afterwards(std::move(record));
  }
} catch (...) {
  ++counters_.skipped_failed;  // out of memory on the way to the queue: the kernel is served
}

}  // namespace kiln::runtime
