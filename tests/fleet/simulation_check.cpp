// The checks that every run of the simulation must pass.
#include <algorithm>

#include "cache/fleet/redis/keys.hpp"
#include "tests/fleet/simulation_node.hpp"

namespace kiln::fleet::simulation {

void Simulation::violated(std::string what) {
  violations_.push_back("seed " + std::to_string(seed_) + " at " +
                        std::to_string(static_cast<double>(now_) / kSecond) + " s: " + std::move(what));
}

/// Checks that the lease of a dead node ends in time, as no node renews it.
void Simulation::check_dead_lease(const std::string& lease, const std::string& token, Micros crashed) {
  const Micros slack = micros(policy_.lease) + kLatest + clock_back_ + kSecond;
  at(crashed + slack, [this, lease, token, slack] {
    server_.expire(now_);
    // When the server's clock was set back meanwhile, the lease lasts longer by that time.
    if (server_.value(lease) == token && slack >= micros(policy_.lease) + kLatest + clock_back_ + kSecond)
      violated("the lease of a dead node lives on");
  });
}

void Simulation::check(Report& report) {
  if (server_.touched_others > 0)
    violated(std::to_string(server_.touched_others) + " commands changed another's lease");
  for (const Period& period : server_.periods()) {
    report.most_compiles_per_period =
        std::max(report.most_compiles_per_period, static_cast<std::uint64_t>(period.compiles));
    if (period.compiles > 1) violated("two compiles in one lease period");
    const bool alive = std::none_of(compiles_.begin(), compiles_.end(), [&](const Compile& compile) {
      return compile.token == period.token && compile.lease == period.lease && !nodes_[compile.node]->alive;
    });
    if (weather_.calm && alive && period.compiles > 0 && period.end == Period::End::expired)
      violated("a lease was not given back");
    report.lost_to_failover += period.end == Period::End::fault && period.compiles > 0;
    report.lost_to_expiry += period.end == Period::End::expired && period.compiles > 0;
    if (period.end == Period::End::deleted || period.end == Period::End::overwritten)
      violated("a lease was ended by another");
  }
  report.periods += server_.periods().size();
  for (const auto& [name, times] : server_.commands) report.commands[name] += times;
  for (const auto& [when, times] : server_.commands_at)
    report.most_commands_per_100_ms = std::max(report.most_commands_per_100_ms, times);
  // Two leased compiles of one key may overlap only after a lease was lost to a fault.
  for (const Compile& first : compiles_) {
    if (!first.leased) continue;
    for (const Compile& second : compiles_) {
      if (!second.leased || second.lease != first.lease || &first == &second || second.began < first.began ||
          second.began >= first.ended)
        continue;
      ++report.overlaps;
      if (weather_.calm) violated("two leased compiles of one key at once, and nothing had happened");
      // Usually the first compile's lease was lost. Otherwise the second compile's own lease was lost before
      // its node had heard of it.
      bool lost = false;
      for (const Period& period : server_.periods()) {
        const bool by_fault = period.end == Period::End::expired || period.end == Period::End::fault;
        if (!by_fault || period.lease != first.lease) continue;
        lost |= period.token == first.token || (period.token == second.token && period.ended <= second.began);
      }
      if (!lost) violated("two leased compiles of one key at once, and no lease was lost");
    }
  }
  for (const auto& owned : nodes_) {
    const Node& node = *owned;
    if (!node.alive) continue;
    for (const auto& [key, ask] : node.asks) {
      ++report.asks;
      report.hits += ask.served >= 0 && !node.compiling.contains(key);
      if (ask.served < 0) {
        violated("an ask was never served");
        continue;
      }
      ++report.served;
      const Micros patience = micros(LeasePolicy().budget) * 102 / 100 + 4 * kReadDeadline;
      if (ask.decided - ask.asked > patience + node.paused_in_all) violated("waited past the budget");
      // A node gives up after three looks without an answer, each at most 30 % later than the previous one.
      for (const auto& [from, to] : node.silences) {
        const Micros until = ask.asked + (from - ask.asked) * 22 / 10 + 2 * kSecond;
        if (ask.asked < from && node.paused_in_all == 0 && to > until && ask.decided > until)
          violated("a silent server was waited for");
      }
      // No node can renew a lease now. A node waits for the lease's end, and then for three acquires, each at
      // most 30 % later than the previous one.
      const bool else_well = loss_ + slow_ + lying_ == 0 && clock_back_ == 0 && node.silences.empty();
      const Micros alone = std::max(ask.asked, writes_paused_from_) + micros(policy_.lease),
                   until = ask.asked + (alone - ask.asked) * 3 + 2 * kSecond;
      if (else_well && node.paused_in_all == 0 && writes_paused_to_ > until && ask.decided > until)
        violated("a server that takes no writes was waited for");
      report.added_s.push_back(std::max(
          0.0, static_cast<double>(ask.served - ask.asked - ask.own_compile - node.paused_in_all) / kSecond));
    }
  }
  if (weather_.calm) {
    for (const Key& key : keys_) {
      std::size_t made = 0, crashed = 0, excused = 0;
      for (const Compile& compile : compiles_) {
        if (compile.lease != lease_key(key)) continue;
        ++made, crashed += compile.crashed;
        excused += nodes_[compile.node]->reads_only;
      }
      // One compile is allowed, and one more for each that crashed. After two crashes in a row all nodes
      // leave the convoy and compile.
      if (crashed < 2 && made > 1 + crashed + excused)
        violated(std::to_string(made) + " compiles of one key, " + std::to_string(crashed) + " crashed");
    }
  }
}

constexpr Micros kLongest = 600 * kSecond;  // a run's limit; all asks are decided long before

void Simulation::run(Report& report) {
  plan_weather();
  while (!events_.empty() && events_.top().when <= kLongest) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.when;
    event.what();
  }
  check(report);
  ++report.runs;
  report.keys += keys_.size();
  report.crashes += crashes_;
  report.failovers += failovers_;
  report.compiles += compiles_.size();
  for (const Compile& compile : compiles_) report.leased += compile.leased;
  report.without_lease = report.compiles - report.leased;
  for (const auto& node : nodes_) {
    const LeaseCounts& from = node->leases->counts();
    LeaseCounts& to = report.counts;
    for (const auto member :
         {&LeaseCounts::served, &LeaseCounts::leased, &LeaseCounts::read_only, &LeaseCounts::unanswered,
          &LeaseCounts::refused, &LeaseCounts::budget, &LeaseCounts::convoy, &LeaseCounts::hopeless,
          &LeaseCounts::waited, &LeaseCounts::takeovers, &LeaseCounts::lost, &LeaseCounts::regained})
      to.*member += from.*member;
  }
  report.violations.insert(report.violations.end(), violations_.begin(), violations_.end());
}

}  // namespace kiln::fleet::simulation
