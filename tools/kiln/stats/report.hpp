// The results of `kiln stats`, before they are shown.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {

/// Sums over a set of entries.
struct StatsSum {
  std::uint64_t entries = 0, cubin_bytes = 0, stored_bytes = 0;
  double compile_ms = 0;

  void add(const StatsSum& other) {
    entries += other.entries, cubin_bytes += other.cubin_bytes;
    stored_bytes += other.stored_bytes, compile_ms += other.compile_ms;
  }
};

struct ArchLess {
  bool operator()(const std::string& a, const std::string& b) const noexcept { return arch_less(a, b); }
};

struct StatsReport {
  StoreView view;
  cache::StoreStats store;
  StatsSum all;
  std::map<std::string, std::map<std::string, StatsSum, ArchLess>> entries;  ///< by template, then by arch
  OtherRecords others;
  std::vector<std::uint64_t> lifetime;  ///< from read_lifetime
  std::vector<std::string> damaged;     ///< keys

  std::map<std::string, StatsSum> by_template() const;
  std::map<std::string, StatsSum, ArchLess> by_arch() const;
  /// True when there are no entries and nothing was ever counted.
  bool nothing() const;
};

/// Walks over the entries once. Throws as view_store and read_entries do.
StatsReport gather_stats(const runtime::Config& config);

}  // namespace kiln::cli
