// What one server of the fleet's tier says of itself: for `kiln remote status` and `kiln doctor`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/fleet/redis/client.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/fleet/tier.hpp"

namespace kiln::cli {

struct ServerLook {
  std::string name;
  fleet::Answer answer;  ///< to a PING; its fault says why there is nothing else
  double round_trip_ms = 0;
  std::string version, policy;  ///< empty: it does not say (an ACL may forbid INFO)
  std::optional<std::uint64_t> keys, used_bytes, max_bytes, evicted, clients;
  std::optional<bool> persists;
  bool has_missing = false;
  std::uint64_t missing = 0;  ///< rows that nodes reported
};

std::vector<ServerLook> look_at_servers(fleet::Tier& tier);
/// What should be set otherwise on it, in a sentence each.
std::vector<std::string> advice_of(const ServerLook& look);
Json json_of(const ServerLook& look);

}  // namespace kiln::cli
