// What kiln stats found, before it is shown.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {

/// Of some entries.
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
  std::uint64_t choices = 0;                                                 ///< tuned ones, no images
  std::vector<std::uint64_t> lifetime;                                       ///< read_lifetime's
  std::vector<std::string> damaged;                                          ///< keys

  std::map<std::string, StatsSum> by_template() const;
  std::map<std::string, StatsSum, ArchLess> by_arch() const;
  /// Neither entries nor anything that was ever counted.
  bool nothing() const;
};

/// One walk over the entries. Throws as view_store and read_entries.
StatsReport gather_stats(const runtime::Config& config);

}  // namespace kiln::cli
