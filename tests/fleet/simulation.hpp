// The lease protocol in virtual time. Nodes run the code of cache/fleet/lease and
// cache/fleet/redis/lease_commands against one server. All faults are drawn at random from one seed.
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
#include "tests/fleet/simulation_server.hpp"

namespace kiln::fleet::simulation {

/// Ways to break the protocol, to test that the checks find them.
enum class Mutation {
  none,
  release_without_compare,  ///< by DEL
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

/// The faults of a run. A calm run has delays of milliseconds and crashes only.
struct Weather {
  bool calm = true;
  /// When not 0, the run has exactly this number of nodes and keys. All nodes may write and none crashes.
  /// They ask for all keys within the first `spread`, and every compile takes `compile`.
  std::size_t nodes = 0, keys = 0;
  Micros spread = 0, compile = 0, latency = 2'000;
  static Weather calm_one() { return {}; }
  static Weather storm() { return {.calm = false}; }
  static Weather crowd(std::size_t nodes, std::size_t keys, Micros spread, Micros compile) {
    return {true, nodes, keys, spread, compile};
  }
  /// Compiles that are quicker than an answer, so that a lease is free again between two commands of a node.
  static Weather hasty() { return {true, 50, 5, 20'000, 100, 30'000}; }
};

struct Report {
  std::uint64_t runs = 0, asks = 0, served = 0, hits = 0, compiles = 0, leased = 0, without_lease = 0;
  std::uint64_t keys = 0, crashes = 0, failovers = 0, periods = 0;
  std::uint64_t most_compiles_per_period = 0;
  std::uint64_t overlaps = 0;  ///< leased compiles of a key at once, in pairs; a lease was lost before each
  std::uint64_t lost_to_failover = 0, lost_to_expiry = 0;
  std::map<std::string, std::uint64_t> commands;  ///< commands that reached the server, by name
  std::uint64_t most_commands_per_100_ms = 0;
  LeaseCounts counts;
  std::vector<double> added_s;  ///< for each ask: seconds to serve it, less its own compile and pauses
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
  Micros now_ = 0, clock_back_ = 0;                         // how far the server's clock was set back in all
  Micros silent_since_ = -1;                                // since when the server is stopped; -1: it runs
  Micros writes_paused_from_ = -1, writes_paused_to_ = -1;  // the server answers reads only, as in a failover
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
