// The results of work on a whole store: what a verification found, and what a rewrite kept and dropped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::cache {

struct DamageReport {
  std::string key;  ///< the entry's key in hex; empty when the file itself is damaged
  std::string what;
};
struct Verified {
  std::uint64_t entries = 0, bytes = 0;  ///< intact entries, and bytes of the file
  std::vector<DamageReport> damaged;
};

struct Rewritten {
  std::uint64_t kept = 0, dropped = 0;              ///< entries; the dropped ones were over the limit
  std::uint64_t damaged = 0;                        ///< entries and pages that could not be read
  std::uint64_t bytes_before = 0, bytes_after = 0;  ///< of the file
};

}  // namespace kiln::cache
