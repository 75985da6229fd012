// The answer to INFO, by which a server of the Redis protocol describes itself.
#pragma once

#include <string>

#include "cache/fleet/upkeep.hpp"

namespace kiln::fleet {

/// Fills in what the text says, and leaves the rest as it is.
void read_info(const std::string& info, ServerLook& out);
/// Settings that ought to differ on a server of a tier, a sentence each, as far as the look knows them.
std::vector<std::string> advice_on(const ServerLook& look);

}  // namespace kiln::fleet
