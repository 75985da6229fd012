// The backend of servers that speak the Redis protocol: the seam's verbs as commands, under the names of
// cache/fleet/redis/keys.hpp.
#pragma once

#include "cache/fleet/backend.hpp"
#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/redis/upkeep/upkeep.hpp"

namespace kiln::fleet {

/// Thread-safe.
class RedisBackend : public Backend {
 public:
  /// Touches neither the network nor a file.
  RedisBackend(const Url& url, const BackendOptions& options);

  void get(std::span<const Key> keys, base::Deadline deadline, const Each& each) override;
  Outcome put(const Key& key, std::string row, std::string envelope, base::Deadline deadline) override;
  std::vector<Rows> list(std::span<const Digest> specialisations, base::Deadline deadline) override;
  LeaseAnswers lease(const std::vector<LeaseRequest>& requests, const LeasePolicy& policy,
                     base::Deadline deadline) override;
  std::vector<Outcome> report(std::span<const std::string> rows, base::Deadline deadline) override;
  std::vector<ServerStatus> health() const override { return client_.status(); }
  Upkeep& upkeep() noexcept override { return upkeep_; }

 private:
  explicit RedisBackend(const ClientOptions& options) : client_(options), upkeep_(options, client_) {}

  Client client_;
  RedisUpkeep upkeep_;
};

}  // namespace kiln::fleet
