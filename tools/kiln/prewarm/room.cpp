#include "tools/kiln/prewarm/room.hpp"
#include "tools/kiln/store/key/sentences.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/log.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kEntryOverhead = 16 << 10;  // facts and key text, when no entry is left to measure
constexpr auto kPatience = std::chrono::seconds(10);

struct Mean {
  std::uint64_t sum = 0, count = 0;
  void add(std::uint64_t value) noexcept { sum += value, ++count; }
  std::uint64_t value_or(std::uint64_t otherwise) const noexcept { return count ? sum / count : otherwise; }
};

std::uint64_t live_limit(std::uint64_t cap_bytes) noexcept { return cap_bytes / 10 * 9; }

/// A cap in whole MiB that holds this many bytes of entries. The store keeps a tenth of the file free. A
/// sixteenth is added for the tree and the estimate's error.
std::uint64_t cap_for(std::uint64_t bytes) noexcept {
  const std::uint64_t with_slack = bytes + bytes / 16 + kMiB;
  return (with_slack / 9 * 10 + kMiB - 1) / kMiB * kMiB;
}

std::string cap_setting(std::uint64_t bytes) {
  return "KILN_CACHE_MAX_SIZE=" + std::to_string(bytes / kMiB) + 'M';
}

bool has(cache::Store& store, const Key& key) {
  return store.peek_text(key, base::Deadline::after(kPatience)).has_value();
}

/// Mean size of an entry without its image.
std::uint64_t mean_overhead(cache::Store& store) {
  Mean mean;
  store.list(
      [&](const cache::Entry& e) { mean.add(e.stored_bytes - std::min(e.stored_bytes, e.image_bytes)); });
  return mean.value_or(kEntryOverhead);
}

/// "scale N=1 FLAG=false sm_90a"
std::string image_name(const compile::FactsIdentity& facts) {
  std::string out(facts.unit);
  for (const auto& [name, value] : facts.parameters) out.append(" ").append(name).append("=").append(value);
  return out.append(" ").append(facts.arch);
}
std::string image_name(const PlannedTask& task) {
  return task.specialization().to_string() + ' ' + task.resolved.arch.name();
}

/// Sizes of a store's entries.
struct KnownSizes {
  std::map<std::string, std::uint64_t> own;
  std::map<std::string, Mean> of_template;

  explicit KnownSizes(cache::Store& store) {
    sum_entries(store, [this](const SummedEntry& entry) {
      own[image_name(entry.facts)] = entry.stored_bytes;
      of_template[std::string(entry.template_name())].add(entry.stored_bytes);
    });
  }
};

struct Estimate {
  std::uint64_t bytes = 0;
  std::size_t unknown = 0;  ///< specialisations whose template has no entry
};

Estimate estimate(cache::Store& store, const std::set<std::string>& elsewhere, const PrewarmPlan& plan) {
  const KnownSizes known(store);
  Estimate out;
  for (const PlannedTask& task : plan.tasks) {
    const std::string name = image_name(task);
    const auto own = known.own.find(name);
    const auto mean = known.of_template.find(task.specialization().template_name);
    if (own != known.own.end())
      out.bytes += own->second;
    else if (elsewhere.contains(name))
      continue;
    else if (mean != known.of_template.end())
      out.bytes += mean->second.value_or(0);
    else
      ++out.unknown;
  }
  return out;
}

/// Names of entries in stores that are only read; a prewarm does not store them again.
std::set<std::string> names_read_only(runtime::Core& core) {
  std::set<std::string> out;
  for (const auto& store : core.state().stores.read_only())
    sum_entries(*store, [&](const SummedEntry& entry) { out.insert(image_name(entry.facts)); });
  return out;
}

}  // namespace

std::string PlanRoom::sentence() const {
  if (enough_bytes <= cap_bytes)
    return "another process removed them (gc, clear, or a smaller KILN_CACHE_MAX_SIZE); the same command "
           "makes them again";
  return "the cache's cap is " + human_bytes(cap_bytes) + ", and about " + human_bytes(evicted_bytes) +
         " more did not fit; " + cap_setting(enough_bytes) +
         " holds all of it, and the same command then makes the rest";
}

PlanRoom look_for_room(runtime::Core& core, const PrewarmResult& result) {
  PlanRoom out;
  const auto stores = core.state().stores.asked();
  std::size_t gone = 0, unpublishable = 0;
  std::uint64_t image_bytes = 0;
  for (const TaskResult& task : result.tasks) {
    const bool done = task.state == TaskResult::State::done;
    out.kept.push_back(task.key != Key{} && std::any_of(stores.begin(), stores.end(), [&](const auto& store) {
                         return has(*store, task.key);
                       }));
    if (!done || out.kept.back()) continue;
    if (!task.unpublishable.empty()) {
      ++unpublishable;
      continue;
    }
    ++gone;
    image_bytes += task.cubin_bytes;
  }
  const std::size_t never_stored = result.uncached - std::min(result.uncached, unpublishable);
  if (gone <= never_stored) return out;
  out.evicted = gone - never_stored;
  try {
    cache::Store& store = *core.state().stores.writable();
    const cache::StoreStats stats = store.stats();
    out.cap_bytes = stats.cap_bytes;
    out.evicted_bytes = image_bytes + gone * mean_overhead(store);
    out.enough_bytes = cap_for(stats.live_bytes + out.evicted_bytes);
  } catch (const Error& error) {
    base::warn(std::string("the cache size that would hold the plan is not known: ") + error.what());
  }
  return out;
}

void warn_without_room(runtime::Core& core, const PrewarmPlan& plan) try {
  cache::Store& store = *core.state().stores.writable();
  const cache::StoreStats stats = store.stats();
  if (stats.entries == 0) return;
  const Estimate needed = estimate(store, names_read_only(core), plan);
  if (needed.bytes <= live_limit(stats.cap_bytes)) return;
  base::warn("the plan takes about " + human_bytes(needed.bytes) +
             " (estimated from the cached entries of its templates" +
             (needed.unknown
                  ? ", without " + counted(needed.unknown, "specialisation") + " of templates without entries"
                  : "") +
             "), and the cache in " + store.directory() + " keeps " +
             human_bytes(live_limit(stats.cap_bytes)) + " of entries under its cap of " +
             human_bytes(stats.cap_bytes) + ": some kernels of this run will be evicted before its end. " +
             cap_setting(cap_for(needed.bytes)) + " would hold all of it");
} catch (const Error& error) {
  base::debug(std::string("whether the plan fits is not known: ") + error.what());
}

}  // namespace kiln::cli
