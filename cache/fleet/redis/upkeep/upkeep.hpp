// Looks after the servers of a tier (cache/fleet/upkeep.hpp), by commands of the Redis protocol.
//
// Each server is asked on connections of its own, behind a breaker of its own, so that a command also looks
// at a server that the backend has given up for now.
#pragma once

#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/upkeep.hpp"

namespace kiln::fleet {

/// Thread-safe.
class RedisUpkeep : public Upkeep {
 public:
  /// `client` is the one that the backend has made with `options`. It must outlive this object.
  RedisUpkeep(const ClientOptions& options, Client& client) : options_(options), client_(client) {}

  /// The servers of the URL, or the nodes that a cluster names.
  std::vector<std::unique_ptr<ServerUpkeep>> servers() override;
  Outcome reach(const Digest& specialisation) override;
  MissedPage missed(const std::string& after, std::size_t most) override;
  std::string missed_removal() const override;
  Outcome forget(std::span<const std::string> ids) override;

 private:
  std::vector<Endpoint> nodes_of_cluster();

  const ClientOptions options_;
  Client& client_;
};

}  // namespace kiln::fleet
