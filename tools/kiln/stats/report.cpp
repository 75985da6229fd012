#include "tools/kiln/stats/report.hpp"

#include <algorithm>

#include "tools/kiln/store/lifetime_counters.hpp"

namespace kiln::cli {

std::map<std::string, StatsSum> StatsReport::by_template() const {
  std::map<std::string, StatsSum> out;
  for (const auto& [name, archs] : entries)
    for (const auto& [arch, sum] : archs) out[name].add(sum);
  return out;
}

std::map<std::string, StatsSum, ArchLess> StatsReport::by_arch() const {
  std::map<std::string, StatsSum, ArchLess> out;
  for (const auto& [name, archs] : entries)
    for (const auto& [arch, sum] : archs) out[arch].add(sum);
  return out;
}

bool StatsReport::nothing() const {
  return store.entries == 0 &&
         std::all_of(lifetime.begin(), lifetime.end(), [](std::uint64_t value) { return value == 0; });
}

StatsReport gather_stats(const runtime::Config& config) {
  StatsReport out;
  out.view = view_store(config);
  out.store.cap_bytes = std::max(config.cache_max_bytes(), cache::kSmallestCap);
  out.lifetime = read_lifetime(out.view.directory);
  if (!out.view.store) return out;
  out.store = out.view.store->stats();
  std::string unit, arch;  // reused for every entry
  sum_entries(
      *out.view.store,
      [&](const SummedEntry& e) {
        const StatsSum one{1, e.cubin_bytes, e.stored_bytes, e.facts.compile_ms};
        out.all.add(one);
        out.entries[unit.assign(e.facts.unit)][arch.assign(e.facts.arch)].add(one);
      },
      &out.damaged, &out.others);
  return out;
}

}  // namespace kiln::cli
