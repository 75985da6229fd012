// "At most one compile per lease period, and every node is served", under random delays, losses, crashes,
// pauses, partitions, failovers and clocks. The checks must also find every mutation of the protocol.
// KILN_SIMULATION_RUNS=100000 makes a long run. A failure's message has the seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>

#include "support/nightly.hpp"
#include "tests/fleet/simulation.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::fleet::simulation;

namespace {

std::uint64_t runs(int in_ci, int at_night) {
  const char* text = std::getenv("KILN_SIMULATION_RUNS");
  return text ? std::strtoull(text, nullptr, 10) : static_cast<std::uint64_t>(ci_or_night(in_ci, at_night));
}

Report simulate(std::uint64_t count, Weather weather) {
  Report report;
  for (std::uint64_t seed = 1; seed <= count; ++seed) Simulation(seed, weather).run(report);
  return report;
}

void expect_kept(const Report& report) {
  EXPECT_TRUE(report.violations.empty())
      << report.violations.size() << ", the first: " << report.violations[0];
  EXPECT_EQ(report.served, report.asks);
  EXPECT_EQ(report.most_compiles_per_period, 1u);
}

void print(const char* name, Report& report) {
  std::sort(report.added_s.begin(), report.added_s.end());
  const auto at = [&](double p) {
    return report.added_s.empty()
               ? 0.0
               : report.added_s[static_cast<std::size_t>(p * static_cast<double>(report.added_s.size() - 1))];
  };
  std::printf(
      "FIGURES %s: %lu runs, %lu keys, %lu of %lu asks served (%lu from the server), %lu compiles (%lu "
      "leased, "
      "%lu crashed nodes), most per lease period %lu, leased ones at once %lu (leases lost: %lu to "
      "failovers, "
      "%lu to expiry); without a lease: unanswered %lu, budget %lu, convoy %lu, hopeless %lu, read only %lu; "
      "takeovers "
      "%lu, regained %lu; "
      "added delay p50 %.3f s, p99 %.2f s, most %.1f s\n",
      name, report.runs, report.keys, report.served, report.asks, report.hits, report.compiles, report.leased,
      report.crashes, report.most_compiles_per_period, report.overlaps, report.lost_to_failover,
      report.lost_to_expiry, report.counts.unanswered, report.counts.budget, report.counts.convoy,
      report.counts.hopeless, report.counts.read_only, report.counts.takeovers, report.counts.regained,
      at(0.5), at(0.99), at(1));
}

}  // namespace

TEST(LeaseSimulation, CompilesOnceInCalmWeather) {
  Report report = simulate(runs(400, 1500), Weather::calm_one());
  print("calm", report);
  expect_kept(report);
  EXPECT_GT(report.hits, report.asks / 2);
  EXPECT_GT(report.counts.takeovers, 0u);
}

TEST(LeaseSimulation, CompilesOncePerLeasePeriodAndServesEverybodyInAStorm) {
  Report report = simulate(runs(500, 2000), Weather::storm());
  print("storm", report);
  expect_kept(report);
  // The storm was strong enough: every way out was taken.
  EXPECT_GT(report.counts.unanswered, 0u);
  EXPECT_GT(report.counts.budget, 0u);
  EXPECT_GT(report.counts.convoy, 0u);
  EXPECT_GT(report.counts.regained, 0u);
  EXPECT_GT(report.overlaps, 0u);
  EXPECT_GT(report.lost_to_failover, 0u);
}

TEST(LeaseSimulation, CompilesOnceWhenCompilesAreAsQuickAsAnswers) {
  Report report = simulate(100, Weather::hasty());
  print("hasty", report);
  expect_kept(report);
  EXPECT_EQ(report.compiles, 500u) << "one for each kernel of each run";
}

TEST(LeaseSimulation, ACrowdAsksForNoMoreThanThePageSays) {
  struct Row {
    const char* name;
    std::size_t keys;
    Micros spread, compile;
  };
  // docs/guide/fleet/capacity.md has the figures of 10,000 nodes. A node asks for all of its keys at once,
  // as in a prepare.
  const std::size_t nodes = std::getenv("KILN_SIMULATION_RUNS") ? 10'000 : 1'000;
  for (const Row& row : {Row{"cold, within a minute, 0.1 s compiles", 16, 60'000'000, 100'000},
                         Row{"cold, within a minute, 8 s compiles", 16, 60'000'000, 8'000'000},
                         Row{"cold, within a second, 2 s compiles", 16, 1'000'000, 2'000'000}}) {
    Report report;
    Simulation(1, Weather::crowd(nodes, row.keys, row.spread, row.compile)).run(report);
    expect_kept(report);
    EXPECT_EQ(report.compiles, row.keys) << "one for each kernel";
    std::printf("FIGURES crowd (%s): %zu nodes x %zu keys: %lu compiles;", row.name, nodes, row.keys,
                report.compiles);
    for (const auto& [name, times] : report.commands)
      std::printf(" %s %lu (%.2f a node)", name.c_str(), times,
                  static_cast<double>(times) / static_cast<double>(nodes));
    std::sort(report.added_s.begin(), report.added_s.end());
    std::printf("; at most %lu in 100 ms; added delay p99 %.2f s\n", report.most_commands_per_100_ms,
                report.added_s[report.added_s.size() * 99 / 100]);
  }
}

struct Broken {
  Mutation mutation;
  const char* name;
  const char* seen_by;  ///< the violation that the checks report
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class LeaseSimulationSees : public ::testing::TestWithParam<Broken> {};

TEST_P(LeaseSimulationSees, ABrokenProtocol) {
  Report report;
  const auto seen = [&] {
    return std::any_of(report.violations.begin(), report.violations.end(), [](const std::string& what) {
      return what.find(GetParam().seen_by) != std::string::npos;
    });
  };
  // In hasty weather compiles are quicker than an answer, so that a lease is free again between two commands.
  for (const Weather& weather : {Weather::hasty(), Weather::calm_one(), Weather::storm()})
    for (std::uint64_t seed = 1; seed <= (weather.nodes ? 100 : 400) && !seen(); ++seed)
      Simulation(seed, weather, GetParam().mutation).run(report);
  EXPECT_TRUE(seen()) << report.violations.size() << " other violations, the first: "
                      << (report.violations.empty() ? "" : report.violations[0]);
}

INSTANTIATE_TEST_SUITE_P(
    , LeaseSimulationSees,
    ::testing::Values(
        Broken{Mutation::release_without_compare, "ReleaseWithoutCompare", "a lease was ended by another"},
        Broken{Mutation::renewal_by_pexpire, "RenewalByPexpire", "changed another's lease"},
        Broken{Mutation::renewal_by_set_xx, "RenewalBySetXx", "a lease was ended by another"},
        Broken{Mutation::no_renewal, "NoRenewal", "at once, and nothing had happened"},
        Broken{Mutation::no_release, "NoRelease", "a lease was not given back"},
        Broken{Mutation::acquire_without_nx, "AcquireWithoutNx", "a lease was ended by another"},
        Broken{Mutation::acquire_without_expiry, "AcquireWithoutExpiry", "the lease of a dead node lives on"},
        Broken{Mutation::no_look_after_acquire, "NoLookAfterAcquire", "compiled what was there"},
        Broken{Mutation::published_after_release, "PublishedAfterRelease", "compiles of one key"},
        Broken{Mutation::one_token_for_all, "OneTokenForAll", "two compiles in one lease period"},
        Broken{Mutation::no_budget, "NoBudget", "waited past the budget"},
        Broken{Mutation::waits_for_a_silent_server, "WaitsForASilentServer",
               "a silent server was waited for"}),
    [](const auto& one) { return one.param.name; });
