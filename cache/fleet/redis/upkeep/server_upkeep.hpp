// Looks after one server (cache/fleet/upkeep.hpp), by commands of the Redis protocol.
#pragma once

#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/upkeep.hpp"

namespace kiln::fleet {

/// Asks again for a few seconds while the server's name is being resolved, which a node does not wait for.
Answer ask_patiently(Client& client, const Command& command);

/// Thread-safe.
class RedisServerUpkeep : public ServerUpkeep {
 public:
  /// Looks after the only server of the options' URL.
  explicit RedisServerUpkeep(const ClientOptions& options);

  Outcome reach() override;
  ServerLook look() override;
  Outcome walk(Walk what, const Page& each) override;
  Value entry(const Key& key) override;
  std::optional<bool> has_entry(const Key& key) override;
  std::optional<Rows> rows(const Digest& specialisation) override;
  Erased erase_rows(const Digest& specialisation, std::span<const std::string> toolchains) override;
  Erased erase(const StoredValue& value) override;

 private:
  Answer ask(const Command& command) { return ask_patiently(client_, command); }

  const std::string name_;
  Client client_;
};

}  // namespace kiln::fleet
