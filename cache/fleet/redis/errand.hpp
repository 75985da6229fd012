// An errand is a command on its way to its server. All servers are asked at once, with one exchange each.
#pragma once

#include <vector>

#include "base/deadline.hpp"
#include "cache/fleet/redis/reply.hpp"
#include "cache/fleet/redis/server.hpp"

namespace kiln::fleet {

struct Errand {
  const Command* command;
  Answer* answer;
  Server* server;
  bool asking = false;  ///< a cluster's node wants ASKING before it
};

/// Fills every answer. Throws std::bad_alloc; the connections in use are closed then.
void run(std::vector<Errand> errands, base::Deadline deadline);

}  // namespace kiln::fleet
