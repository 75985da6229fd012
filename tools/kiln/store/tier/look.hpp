// State of one server of the fleet's tier, for `kiln remote status` and `kiln doctor`.
#pragma once

#include <vector>

#include "cache/fleet/upkeep.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/tier/tier.hpp"

namespace kiln::cli {

/// Queries the servers one after the other.
std::vector<fleet::ServerLook> look_at_servers(fleet::Tier& tier);
Json json_of(const fleet::ServerLook& look);

}  // namespace kiln::cli
