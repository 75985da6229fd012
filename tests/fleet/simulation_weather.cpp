// The start and the faults of a simulation's run: everything that is drawn from the seed.
#include <algorithm>
#include <utility>

#include "tests/fleet/simulation_node.hpp"

namespace kiln::fleet::simulation {

Simulation::Simulation(std::uint64_t seed, Weather weather, Mutation mutation)
    : seed_(seed), weather_(weather), mutation_(mutation), random_(seed) {
  if (mutation_ == Mutation::no_renewal) policy_.renew_every = std::chrono::hours(1);
  if (mutation_ == Mutation::no_budget) policy_.budget = std::chrono::hours(1);
  if (mutation_ == Mutation::waits_for_a_silent_server) policy_.unanswered = 1 << 30;
  if (!weather_.calm) {
    loss_ = chance(0.5) ? 0.02 * static_cast<double>(between(0, 10)) : 0;
    slow_ = chance(0.5) ? 0.02 * static_cast<double>(between(0, 10)) : 0;
    lying_ = chance(0.1) ? 0.5 : 0;
  }
  const auto drawn_nodes = static_cast<std::size_t>(between(2, 16)),
             drawn_keys = static_cast<std::size_t>(between(1, 5));
  const std::size_t nodes = weather_.nodes ? weather_.nodes : drawn_nodes,
                    keys = weather_.keys ? weather_.keys : drawn_keys;
  for (std::size_t i = 0; i < keys; ++i) {
    Key key;
    key.specialisation.bytes[0] = static_cast<std::uint8_t>(i + 1);
    keys_.push_back(key);
    compile_time_[key] = compile_time();
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    auto node = std::make_unique<Node>();
    node->index = i;
    node->epoch = between(kSecond, 1'000'000 * kSecond);
    node->rate = 1 + 0.0001 * static_cast<double>(between(-100, 100));  // a bad clock: off by up to 1 %
    node->reads_only = chance(0.1) && weather_.nodes == 0;
    LeasePolicy policy = policy_;
    policy.may_write = !node->reads_only;
    const bool same = mutation_ == Mutation::one_token_for_all;
    node->leases = std::make_unique<Leases>(
        policy, same ? "all" : "node" + std::to_string(i), [this, same] { return same ? 7 : random_(); },
        [](const Key& key, const std::string& bytes) { return bytes == value_of(key); });
    nodes_.push_back(std::move(node));
  }
}
Simulation::~Simulation() = default;

void Simulation::at(Micros when, std::function<void()> what) {
  events_.push({when, sequence_++, std::move(what)});
}
Micros Simulation::between(Micros low, Micros high) {
  return low + static_cast<Micros>(random_() % static_cast<std::uint64_t>(high - low + 1));
}
bool Simulation::chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }

Micros Simulation::compile_time() {
  if (weather_.compile) return weather_.compile;
  const Micros kind = between(0, 9);
  if (kind < 5) return between(30 * kMilli, 500 * kMilli);
  if (kind < 8) return between(kSecond, 8 * kSecond);
  // These compiles are longer than a lease. In calm weather a compile after a takeover
  // must also fit the budget.
  if (weather_.calm) return between(12 * kSecond, 14 * kSecond);
  return kind < 9 ? between(12 * kSecond, 40 * kSecond) : between(70 * kSecond, 100 * kSecond);
}

/// Draws the times of asks, crashes, pauses, partitions and the server's faults.
void Simulation::plan_weather() {
  // Nodes ask all at once or one after another. In the second case most nodes are served
  // before the last one asks.
  const Micros drawn = chance(0.5) ? 50 * kMilli : 20 * kSecond,
               spread = weather_.nodes ? weather_.spread : drawn;
  for (const auto& owned : nodes_) {
    Node& node = *owned;
    const Micros together = between(1, spread);
    for (const Key& key : keys_) {
      if (!chance(0.9) && weather_.nodes == 0) continue;
      const Micros when = weather_.nodes ? together : between(1, spread);
      at(when, [this, &node, key] {
        if (!node.alive) return;
        Ask ask;
        ask.asked = now_;
        ask.own_compile =
            compile_time_[key] * between(80, 130) / 100;  // a kernel's compile time is similar on all nodes
        node.asks[key] = ask;
        if (weather_.nodes) return first_look(node, key);
        node.leases->want(key, node.time(now_));
        wake(node);
      });
    }
    if (chance(0.15) && weather_.nodes == 0) at(between(1, 30 * kSecond), [this, &node] { crash(node); });
    if (weather_.calm) continue;
    if (chance(0.15)) {
      const Micros from = between(1, 40 * kSecond), length = between(100 * kMilli, 60 * kSecond);
      const bool clock_stops = chance(0.3);
      at(from, [this, &node, length, clock_stops] { pause(node, now_ + length, clock_stops); });
    }
    if (chance(0.2)) {
      const Micros from = between(1, 40 * kSecond),
                   length = chance(0.3) ? 60 * kSecond : between(kMilli, 30 * kSecond);
      at(from, [&node] { node.cut_off = true; });
      node.silences.push_back({from, from + length});
      at(from + length, [&node] { node.cut_off = false; });
    }
  }
  if (weather_.calm) return;
  for (Micros i = between(0, 2); i > 0; --i)
    at(between(1, 60 * kSecond), [this] {
      ++failovers_;
      chance(0.3) ? server_.flush(now_) : server_.fail_over(between(1, 2 * kSecond), now_);
    });
  for (Micros i = between(0, 1); i > 0; --i) {
    const Micros from = between(1, 40 * kSecond), length = between(100 * kMilli, 40 * kSecond);
    const bool restarts_empty = chance(0.5);
    at(from, [this] { silent_since_ = now_; });
    for (const auto& node : nodes_) node->silences.push_back({from, from + length});
    at(from + length, [this, restarts_empty] {
      silent_since_ = -1;
      if (restarts_empty) ++failovers_, server_.flush(now_);
    });
  }
  if (chance(0.3)) {
    writes_paused_from_ = between(1, 40 * kSecond);
    writes_paused_to_ = writes_paused_from_ + between(100 * kMilli, 60 * kSecond);
  }
  for (Micros i = between(0, 1); i > 0; --i) {
    const Micros forward = chance(0.5) ? between(-30 * kSecond, -kMilli) : between(kMilli, 3600 * kSecond);
    at(between(1, 40 * kSecond), [this, forward] {
      server_.set_clock(forward, now_);
      clock_back_ += std::max<Micros>(0, -forward);
    });
  }
}

void Simulation::crash(Node& node) {
  if (!node.alive) return;
  node.alive = false;
  ++crashes_;
  for (const auto& [key, index] : node.compiling) {
    Compile& compile = compiles_[index];
    if (compile.ended <= now_) continue;
    compile.ended = now_;
    compile.crashed = true;
    if (compile.leased) check_dead_lease(compile.lease, compile.token, now_);
  }
}

void Simulation::pause(Node& node, Micros until, bool clock_stops) {
  if (!node.alive || node.paused) return;
  node.paused = true;
  const Micros from = now_;
  at(until, [this, &node, from, clock_stops] {
    node.paused = false;
    node.paused_in_all += now_ - from;
    if (clock_stops) node.stood_still += now_ - from;
    for (auto& what : std::exchange(node.when_resumed, {})) what();
    wake(node);
  });
}

}  // namespace kiln::fleet::simulation
