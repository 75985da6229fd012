// The data of `kiln report`, gathered from a store: entries with their groups and compile times, the store's
// lifetime counters, and the last prewarm.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/kiln/plan/note.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/store/spaces.hpp"

namespace kiln::cli {

/// The entries of one template for one arch.
struct ReportGroup {
  std::string unit, arch;
  std::uint64_t entries = 0, cubin_bytes = 0, stored_bytes = 0;
  std::uint64_t timed = 0;  ///< entries whose compile times are recorded
  double compile_ms = 0;
  std::vector<const StoredEntry*> largest;  ///< by stored bytes
};

enum class Phase { whole, front_end, nvvm, ptxas };
inline constexpr Phase kPhases[] = {Phase::whole, Phase::front_end, Phase::nvvm, Phase::ptxas};
double ms_of(const compile::Facts& facts, Phase phase) noexcept;

struct Spread {
  double median = 0, p95 = 0, most = 0, sum = 0;  ///< ms
};
/// Spread of the values; zeros when there are none. Percentiles are values that occur (nearest rank).
Spread spread_of(std::vector<double> values);

struct TemplateTimes {
  std::string unit;
  std::uint64_t entries = 0, timed = 0;
  Spread spread[std::size(kPhases)];
};

/// Counts of compile times in bins that are equal on a logarithmic scale.
struct Histogram {
  std::vector<double> edges;  ///< ms, one more than bins; empty: no time is recorded
  std::vector<std::uint64_t> bins[std::size(kPhases)];
  double medians[std::size(kPhases)] = {};
};

// NOLINTNEXTLINE(bugprone-exception-escape): its Json moves without an exception
struct ReportData {
  std::int64_t made_s = 0;
  std::string directory;
  bool there = false;      ///< true when there is a store
  std::string unreadable;  ///< why the store cannot be read at all; the store is then damaged
  cache::StoreStats store;
  std::vector<StoredEntry> entries;
  std::vector<std::string> damaged;  ///< keys
  std::uint64_t other_versions = 0;  ///< entries that only another version of kiln reads
  std::uint64_t cubin_bytes = 0, stored_bytes = 0, timed = 0;
  double compile_ms = 0;
  std::vector<std::string> templates, archs;  ///< names, sorted
  std::vector<ReportGroup> groups;            ///< largest first
  std::vector<TemplateTimes> times;           ///< most compile time first
  Histogram histogram;
  std::vector<const StoredEntry*> slowest, largest;
  Json lifetime;                   ///< by runtime::lifetime_counters; groups are objects
  std::optional<double> hit_rate;  ///< of lookups beyond a process's ready kernels; nothing: no lookups
  std::vector<SpaceView> spaces;   ///< of blobs of other JIT compilers
  double saved_ms = 0;
  bool saved_counted = false;  ///< counted by the store; else a lower bound from the noted uses
  Note prewarm;
  /// By unit: the parameters whose values differ among its entries.
  std::map<std::string, std::set<std::string>> varying;

  /// "T=bf16 H=4096": parameters that differ among the template's entries; all parameters of a single entry.
  std::string parameters_of(const StoredEntry& entry) const;
  bool any_damage() const noexcept { return !unreadable.empty() || !damaged.empty(); }
};

/// Throws Error(io) when the store cannot be read. Damage is part of the result. The result holds pointers
/// into its own entries, so they are neither copied nor moved separately.
std::unique_ptr<const ReportData> report_data(const runtime::Config& config);

}  // namespace kiln::cli
