// The spaces of blobs of one store: what is in it, and what processes have counted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// Counts since the store was made, by the names of runtime::blob_counters(). All are there.
using SpaceCounts = std::map<std::string, std::uint64_t>;

struct SpaceView {
  std::string space;
  std::uint64_t compatibilities = 0, blobs = 0;
  std::uint64_t stored_bytes = 0;   ///< of all records, also of parts whose blob is gone
  std::uint64_t content_bytes = 0;  ///< of the blobs, unpacked
  SpaceCounts counts;

  /// For people: "97.5 %", or "-" when nothing was looked up.
  std::string hit_rate() const;
};

/// Blobs that could not be stored, that were damaged, or that were missed after the seal.
std::uint64_t failed_of(const SpaceCounts& counts);

/// The counts of each space that processes have used in the store in `directory`. Opens no store.
std::map<std::string, SpaceCounts> space_counts(const std::string& directory);

/// The spaces with blobs or counts, by name. `store` may be null. Throws as Store::list does.
std::vector<SpaceView> spaces_of(cache::Store* store, const std::string& directory);

/// Adds the counts to an object, in the order of runtime::blob_counters().
void add_counts(Json& to, const SpaceCounts& counts);
/// The fields of --json that the commands share.
Json json_of(const SpaceView& space);

}  // namespace kiln::cli
