// Writes captured directories and blobs of spaces to the fleet's tier.
#pragma once

#include <set>
#include <string>

#include "runtime/config/config.hpp"
#include "tools/kiln/caches/directory/target.hpp"
#include "tools/kiln/caches/tree/listing.hpp"
#include "tools/kiln/store/tier/transfer.hpp"

namespace kiln::cli {

/// Writes the files of a captured directory to the tier, and its record once the tier has them all.
/// REQUIRES: tier.can_write().
Pushed push_captured(const Target& target, const Tree& tree, fleet::Tier& tier, const runtime::Config& config,
                     bool quiet);

/// Writes the blobs of these spaces to the tier. REQUIRES: tier.can_write().
Pushed push_spaces(const std::set<std::string>& spaces, fleet::Tier& tier, const runtime::Config& config,
                   bool quiet);

}  // namespace kiln::cli
