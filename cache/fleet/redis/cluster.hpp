// Redis Cluster: each command goes to the node that has its slot, and follows the slot when it has moved.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/process.hpp"
#include "cache/fleet/redis/cluster_slots.hpp"
#include "cache/fleet/redis/reply.hpp"
#include "cache/fleet/redis/server.hpp"

namespace kiln::fleet {

/// Thread-safe. A forked child learns the slots again.
class Cluster {
 public:
  /// `seeds` are asked which node has which slot. They must outlive this object.
  Cluster(std::vector<Server*> seeds, std::shared_ptr<const Common> common)
      : seeds_(std::move(seeds)), common_(std::move(common)) {}

  /// `answers` has one element for each command. Redirections are followed three times at most, all within
  /// `deadline`. Throws std::bad_alloc.
  void call(const std::vector<Command>& commands, std::vector<Answer>& answers, base::Deadline deadline);
  /// The nodes that are no seeds.
  std::vector<Server*> nodes() const;

 private:
  struct State {
    std::mutex mutex;                                      // guards what follows
    std::map<std::string, std::unique_ptr<Server>> nodes;  // never removed
    std::array<Server*, kHashSlots> owners{};              // null: not known
    bool known = false, stale = false, learning = false;
    base::Clock::time_point learnt_at{};
  };
  void learn(State& state, std::vector<Answer>& answers, base::Deadline deadline);
  bool learn_from(State& state, Server& server, Answer& answer, base::Deadline deadline);
  Server* node(State& state, const Node& node, const Server& asked);

  const std::vector<Server*> seeds_;
  const std::shared_ptr<const Common> common_;
  mutable base::PerProcess<State> state_;
};

}  // namespace kiln::fleet
