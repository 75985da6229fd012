// A Redis Cluster of three real nodes, each with a third of the hash slots.
#pragma once

#include <memory>

#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/redis/cluster_slots.hpp"
#include "fleet/client_calls.hpp"
#include "fleet/redis_server.hpp"

namespace kiln::testing {

class RealCluster {
 public:
  RealCluster() {
    for (int i = 0; i < kNodes; ++i) {
      nodes_.push_back(std::make_unique<RedisServer>(std::vector<std::string>{
          "--cluster-enabled", "yes", "--cluster-port", std::to_string(free_port()),
          "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000"}));
      clients_.push_back(std::make_unique<fleet::Client>(fleet::test::options(nodes_.back()->url())));
    }
    for (int i = 0; i < kNodes; ++i) {
      const int first = i * 16384 / kNodes, last = (i + 1) * 16384 / kNodes - 1;
      ask(i, {"CLUSTER", "ADDSLOTSRANGE", std::to_string(first), std::to_string(last)});
      ask(i, {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
      ids_.push_back(ask(i, {"CLUSTER", "MYID"}).text);
    }
    for (int i = 1; i < kNodes; ++i)
      ask(0, {"CLUSTER", "MEET", "127.0.0.1", std::to_string(nodes_[static_cast<std::size_t>(i)]->port()),
              bus_port(i)});
    ready_ = base::poll_until(base::Deadline::after(std::chrono::seconds(30)), [&] {
      for (int i = 0; i < kNodes; ++i)
        if (ask(i, {"CLUSTER", "SLOTS"}).elements.size() != kNodes ||
            ask(i, {"CLUSTER", "INFO"}).text.find("cluster_state:ok") == std::string::npos)
          return false;
      return true;
    });
  }
  bool ready() const { return ready_; }
  fleet::Reply ask(int node, std::vector<std::string> words) {
    return clients_[static_cast<std::size_t>(node)]
        ->call(fleet::test::command(std::move(words)), fleet::test::soon())
        .reply;
  }
  RedisServer& node(int i) { return *nodes_[static_cast<std::size_t>(i)]; }
  const std::string& id(int i) const { return ids_[static_cast<std::size_t>(i)]; }
  std::string url() const { return nodes_[0]->url() + "?cluster=true"; }
  static int owner(const std::string& tag) {
    for (int i = 0; i < kNodes; ++i)
      if (fleet::hash_slot_of(tag) < (i + 1) * 16384 / kNodes) return i;
    return 0;
  }
  static constexpr int kNodes = 3;

 private:
  std::string bus_port(int i) { return ask(i, {"CONFIG", "GET", "cluster-port"}).elements.at(1).text; }

  std::vector<std::unique_ptr<RedisServer>> nodes_;
  std::vector<std::unique_ptr<fleet::Client>> clients_;
  std::vector<std::string> ids_;
  bool ready_ = false;
};

}  // namespace kiln::testing
