#include "tools/kiln/report/data.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "cache/store/file/pages.hpp"
#include "runtime/state/lifetime.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kRows = 30;           // rows in the tables of the slowest and the largest entries
constexpr std::size_t kGroups = 300;        // groups drawn separately; smaller ones are merged
constexpr std::size_t kLargestShown = 600;  // in all groups together
constexpr int kBins = 36;

bool timed(const StoredEntry& entry) { return entry.facts.compile_ms > 0; }

template <class Greater>
std::vector<const StoredEntry*> first_of(const std::vector<const StoredEntry*>& of, std::size_t most,
                                         const Greater& greater) {
  std::vector<const StoredEntry*> out = of;
  const std::size_t count = std::min(most, out.size());
  std::partial_sort(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end(),
                    [&](const StoredEntry* a, const StoredEntry* b) {
                      const auto x = greater(*a), y = greater(*b);
                      return x != y ? x > y : a->key < b->key;
                    });
  out.resize(count);
  return out;
}

std::uint64_t stored_bytes(const StoredEntry& entry) { return entry.stored_bytes; }

void add_groups(ReportData& data) {
  using Name = std::pair<std::string, std::string>;
  std::map<Name, std::vector<const StoredEntry*>> members;
  for (const StoredEntry& e : data.entries) members[{e.facts.unit, e.facts.arch}].push_back(&e);
  for (const auto& [name, of] : members) {
    ReportGroup group{name.first, name.second, of.size(), 0, 0, 0, 0, {}};
    for (const StoredEntry* e : of) {
      group.cubin_bytes += e->cubin_bytes, group.stored_bytes += e->stored_bytes;
      group.timed += timed(*e), group.compile_ms += e->facts.compile_ms;
    }
    data.groups.push_back(std::move(group));
  }
  std::stable_sort(data.groups.begin(), data.groups.end(), [](const ReportGroup& a, const ReportGroup& b) {
    return a.stored_bytes > b.stored_bytes;
  });
  if (data.groups.size() > kGroups) {
    ReportGroup rest{"(" + std::to_string(data.groups.size() - kGroups) + " smaller groups)",
                     "various",
                     0,
                     0,
                     0,
                     0,
                     0,
                     {}};
    for (std::size_t i = kGroups; i < data.groups.size(); ++i) {
      const ReportGroup& g = data.groups[i];
      rest.entries += g.entries, rest.cubin_bytes += g.cubin_bytes, rest.stored_bytes += g.stored_bytes;
      rest.timed += g.timed, rest.compile_ms += g.compile_ms;
    }
    data.groups.resize(kGroups);
    data.groups.push_back(std::move(rest));
  }
  const std::size_t each =
      std::clamp<std::size_t>(kLargestShown / std::max<std::size_t>(1, data.groups.size()), 2, 40);
  for (ReportGroup& group : data.groups) {
    const auto of = members.find({group.unit, group.arch});
    if (of != members.end()) group.largest = first_of(of->second, each, stored_bytes);
  }
}

void add_times(ReportData& data) {
  std::map<std::string, std::vector<const StoredEntry*>> members;
  for (const StoredEntry& e : data.entries) members[e.facts.unit].push_back(&e);
  for (const auto& [unit, of] : members) {
    TemplateTimes times{unit, of.size(), 0, {}};
    for (const Phase phase : kPhases) {
      std::vector<double> values;
      for (const StoredEntry* e : of) {
        if (timed(*e)) values.push_back(ms_of(e->facts, phase));
      }
      times.timed = values.size();
      times.spread[static_cast<int>(phase)] = spread_of(std::move(values));
    }
    data.times.push_back(std::move(times));
  }
  std::stable_sort(data.times.begin(), data.times.end(), [](const TemplateTimes& a, const TemplateTimes& b) {
    return a.spread[0].sum > b.spread[0].sum;
  });
}

void add_histogram(ReportData& data) {
  double least = 0, most = 0;
  for (const StoredEntry& e : data.entries) {
    for (const Phase phase : kPhases) {
      const double ms = ms_of(e.facts, phase);
      if (!timed(e) || !(ms > 0)) continue;
      least = least > 0 ? std::min(least, ms) : ms;
      most = std::max(most, ms);
    }
  }
  if (!(most > 0)) return;
  const double low = std::log10(least) - 0.05, high = std::max(std::log10(most) + 0.05, low + 0.5);
  Histogram& out = data.histogram;
  for (int i = 0; i <= kBins; ++i) out.edges.push_back(std::pow(10, low + (high - low) * i / kBins));
  for (const Phase phase : kPhases) {
    auto& bins = out.bins[static_cast<int>(phase)];
    bins.resize(kBins);
    std::vector<double> values;
    for (const StoredEntry& e : data.entries) {
      const double ms = ms_of(e.facts, phase);
      if (!timed(e) || !(ms > 0)) continue;
      const int bin = static_cast<int>((std::log10(ms) - low) / (high - low) * kBins);
      values.push_back(ms);
      ++bins[static_cast<std::size_t>(std::clamp(bin, 0, kBins - 1))];
    }
    out.medians[static_cast<int>(phase)] = spread_of(std::move(values)).median;
  }
}

std::uint64_t sum_of(const Json& group) {
  std::uint64_t out = 0;
  for (const auto& [name, value] : group.items()) out += value.get<std::uint64_t>();
  return out;
}

/// A lookup counts for each request that no ready kernel of its process answered. A request that a record of
/// another toolchain served was counted as a miss before.
std::optional<double> hit_rate_of(const Json& lifetime) {
  const Json &hits = lifetime.at("hits"), &misses = lifetime.at("misses");
  const std::uint64_t foreign = hits.value("foreign_toolchain", std::uint64_t{0}) +
                                hits.value("other_arch", std::uint64_t{0}),
                      found = sum_of(hits);
  const std::uint64_t asks = found - foreign + std::max(sum_of(misses), foreign);
  if (asks == 0) return std::nullopt;
  return static_cast<double>(found) / static_cast<double>(asks);
}

void add_lifetime(ReportData& data) {
  data.lifetime = {{"hits", Json::object()}, {"misses", Json::object()}, {"puts", Json::object()}};
  const std::vector<std::uint64_t> values = cache::Tally(data.directory + "/v1").read();
  const auto counters = runtime::lifetime_counters();
  for (std::size_t i = 0; i < counters.size(); ++i) {
    const std::string name = counters[i].name;
    (*counters[i].group ? data.lifetime[counters[i].group] : data.lifetime)[name] = values[i];
    if (name.find("saved") == std::string::npos || !name.ends_with("_us")) continue;
    data.saved_counted = true;
    data.saved_ms = static_cast<double>(values[i]) / 1000;
  }
  data.hit_rate = hit_rate_of(data.lifetime);
  if (data.saved_counted) return;
  for (const StoredEntry& e : data.entries) {
    const std::uint64_t hits = e.uses > 1 ? e.uses - 1 : 0;  // the first use was the put
    data.saved_ms += static_cast<double>(hits) * e.facts.compile_ms;
  }
}

void add_sums(ReportData& data) {
  std::set<std::string> templates;
  std::set<std::string, bool (*)(const std::string&, const std::string&)> archs(&arch_less);
  std::vector<const StoredEntry*> all;
  for (const StoredEntry& e : data.entries) {
    data.cubin_bytes += e.cubin_bytes, data.stored_bytes += e.stored_bytes;
    data.timed += timed(e), data.compile_ms += e.facts.compile_ms;
    templates.insert(e.facts.unit), archs.insert(e.facts.arch);
    all.push_back(&e);
  }
  data.templates.assign(templates.begin(), templates.end());
  data.archs.assign(archs.begin(), archs.end());
  data.slowest = first_of(all, kRows, [](const StoredEntry& e) { return e.facts.compile_ms; });
  std::erase_if(data.slowest, [](const StoredEntry* e) { return !timed(*e); });
  data.largest = first_of(all, kRows, stored_bytes);
}

void find_varying(ReportData& data) {
  std::map<std::string, std::map<std::string, std::string>> first;  // unit -> parameter -> value
  for (const StoredEntry& e : data.entries) {
    const auto [seen, fresh] = first.try_emplace(e.facts.unit);
    for (const Parameter& p : e.facts.parameters) {
      const auto [value, is_new] = seen->second.try_emplace(p.name, p.value);
      if (value->second != p.value || (is_new && !fresh)) data.varying[e.facts.unit].insert(p.name);
    }
  }
}

}  // namespace

std::string ReportData::parameters_of(const StoredEntry& entry) const {
  const auto differ = varying.find(entry.facts.unit);
  std::vector<Parameter> shown = entry.facts.parameters;
  if (differ != varying.end())
    std::erase_if(shown, [&](const Parameter& p) { return !differ->second.contains(p.name); });
  return text_of(shown);
}

double ms_of(const compile::Facts& facts, Phase phase) noexcept {
  switch (phase) {
    case Phase::whole:
      return facts.compile_ms;
    case Phase::front_end:
      return facts.frontend_ms;
    case Phase::nvvm:
      return facts.nvvm_ms;
    case Phase::ptxas:
      return facts.ptxas_ms;
  }
  return 0;
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto rank = [&](double share) {
    const double at = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<std::size_t>(std::max(1.0, at)) - 1];
  };
  Spread out{rank(0.5), rank(0.95), values.back(), 0};
  for (const double value : values) out.sum += value;
  return out;
}

std::unique_ptr<const ReportData> report_data(const runtime::Config& config) {
  auto data = std::make_unique<ReportData>();
  data->made_s = std::time(nullptr);
  const StorePlace place = find_store(config);
  data->directory = place.directory, data->there = place.there;
  data->store.cap_bytes = std::max(config.cache_max_bytes(), cache::kSmallestCap);
  OtherRecords others;  // they are no kernels
  if (place.there) {
    try {
      const StoreView view = view_store(config);
      data->entries = read_entries(*view.store, &data->damaged, &others);
      data->store = view.store->stats();
      data->spaces = spaces_of(others.blobs > 0 ? view.store.get() : nullptr, place.directory);
    } catch (const cache::Damaged& damage) {
      data->entries.clear();
      data->unreadable = damage.what();
      data->spaces = spaces_of(nullptr, place.directory);
    }
  }
  const std::uint64_t seen = data->entries.size() + others.choices + others.blobs + data->damaged.size();
  data->other_versions = data->store.entries > seen ? data->store.entries - seen : 0;
  find_varying(*data);
  add_sums(*data);
  add_groups(*data);
  add_times(*data);
  add_histogram(*data);
  add_lifetime(*data);
  data->prewarm = read_note(place.directory);
  return data;
}

}  // namespace kiln::cli
