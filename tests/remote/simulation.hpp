// The lease protocol over virtual time: nodes that run the very code of remote/lease and
// remote/lease_commands against one server, with everything that can go wrong drawn at random from one seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "cache/fleet/redis/lease_commands.hpp"
#include "tests/remote/simulation_server.hpp"

namespace kiln::fleet::simulation {

/// How the protocol is broken, to see that the checks see it.
enum class Mutation {
  none,
  release_without_compare,  ///< DEL
  renewal_by_pexpire,
  renewal_by_set_xx,
  no_renewal,
  no_release,
  acquire_without_nx,
  acquire_without_expiry,
  no_look_after_acquire,
  published_after_release,
  one_token_for_all,
  no_budget,
  waits_for_a_silent_server,
};

/// What a run may hold. A calm one has delays of milliseconds and crashes, and no more.
struct Weather {
  bool calm = true;
  /// Not 0: so many nodes that write and live, which ask for so many keys in the first `spread`, each kernel
  /// being a compile of `compile`.
  std::size_t nodes = 0, keys = 0;
  Micros spread = 0, compile = 0, latency = 2'000;
  static Weather calm_one() { return {}; }
  static Weather storm() { return {.calm = false}; }
  static Weather crowd(std::size_t nodes, std::size_t keys, Micros spread, Micros compile) {
    return {true, nodes, keys, spread, compile};
  }
  /// Compiles take no longer than an answer, so that a lease is free again between two commands of a node.
  static Weather hasty() { return {true, 50, 5, 20'000, 100, 30'000}; }
};

struct Report {
  std::uint64_t runs = 0, asks = 0, served = 0, hits = 0, compiles = 0, leased = 0, without_lease = 0;
  std::uint64_t keys = 0, crashes = 0, failovers = 0, periods = 0;
  std::uint64_t most_compiles_per_period = 0;
  std::uint64_t overlaps = 0;  ///< two leased compiles of a key at once; each after a counted loss of a lease
  std::uint64_t lost_to_failover = 0, lost_to_expiry = 0;
  std::map<std::string, std::uint64_t> commands;  ///< that reached the server, by name
  std::uint64_t most_commands_per_100_ms = 0;
  LeaseCounts counts;
  std::vector<double> added_s;  ///< for each ask: served after, less a compile of its own at once
  std::vector<std::string> violations;
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, Weather weather, Mutation mutation = Mutation::none);
  ~Simulation();
  /// Adds this run to `report`.
  void run(Report& report);

 private:
  struct Node;
  struct Ask {
    Micros asked = 0, decided = -1, served = -1, own_compile = 0;
    bool leased = false;
  };
  struct Compile {
    std::string lease, token;
    std::size_t node;
    Micros began, ended;
    bool leased, crashed = false;
  };

  void at(Micros when, std::function<void()> what);
  Micros between(Micros low, Micros high);
  bool chance(double p);
  Micros compile_time();
  Micros latency();
  bool reachable(const Node& node) const;
  std::vector<std::string> mutated(std::vector<std::string> words) const;

  void plan_weather();
  void crash(Node& node);
  void pause(Node& node, Micros until, bool clock_stops);
  void step(Node& node);
  void wake(Node& node);
  void first_look(Node& node, const Key& key);
  void send(Node& node, std::vector<Command> commands, std::function<void(std::vector<Answer>)> then);
  void decided(Node& node);
  void compiled(Node& node, const Key& key);
  void check_dead_lease(const std::string& lease, const std::string& token, Micros crashed);
  void check(Report& report);
  void violated(std::string what);

  std::uint64_t seed_;
  Weather weather_;
  Mutation mutation_;
  LeasePolicy policy_;
  std::mt19937_64 random_;
  Micros now_ = 0, clock_back_ = 0;                         // how far the server's clock was ever set back
  Micros silent_since_ = -1;                                // the server is stopped
  Micros writes_paused_from_ = -1, writes_paused_to_ = -1;  // it answers reads, as in a failover
  double loss_ = 0, slow_ = 0, lying_ = 0;
  std::uint64_t sequence_ = 0;
  struct Event {
    Micros when;
    std::uint64_t sequence;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return when != other.when ? when > other.when : sequence > other.sequence;
    }
  };
  std::priority_queue<Event> events_;
  Server server_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Key> keys_;
  std::map<Key, Micros> compile_time_;
  std::vector<Compile> compiles_;
  std::vector<std::string> violations_;
  std::uint64_t failovers_ = 0, crashes_ = 0;
};

}  // namespace kiln::fleet::simulation
