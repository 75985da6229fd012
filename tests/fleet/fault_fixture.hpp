// Servers that fail, and checks of the results of calls to them.
#pragma once

#include <gtest/gtest.h>

#include "cache/fleet/redis/client.hpp"
#include "fleet/bad_server.hpp"
#include "support/time_limit.hpp"

namespace kiln::fleet::test {

using kiln::testing::BadServer;
using kiln::testing::Peer;

/// The deadlines of 100 ms to connect and 150 ms for an exchange, times ten for a busy machine.
inline constexpr std::chrono::milliseconds kBounded{2500};

inline Command get(const std::string& key) { return {.words = {"GET", key}, .tag = {}}; }
inline base::Deadline never() { return base::Deadline::never(); }

/// Answers every command with "value of " and its last word.
inline void serve(Peer& peer) {
  for (auto words = peer.command(); !words.empty(); words = peer.command())
    if (!peer.say_bulk("value of " + words.back())) return;
}

/// Runs `script` for the first connection, and serves later connections.
inline BadServer::Script at_first(BadServer::Script script) {
  return [script](Peer& peer) { peer.number() == 0 ? script(peer) : serve(peer); };
}

struct Timed {
  Answer answer;
  base::Clock::duration took;
};
inline Timed timed(Client& client, const Command& command, base::Deadline deadline = never()) {
  const auto began = base::Clock::now();
  Answer answer = client.call(command, deadline);
  return {std::move(answer), base::Clock::now() - began};
}

/// Expects that a call to the script's server ends with `fault`, and that the next call
/// gets its own key's value.
inline void expect_fault(Fault fault, const BadServer::Script& script, base::Clock::duration at_least = {}) {
  BadServer server(at_first(script));
  Client client({.url = Url::parse(server.url())});
  const Timed first = timed(client, get("one"));
  EXPECT_EQ(name_of(first.answer.fault), std::string(name_of(fault))) << first.answer.detail;
  EXPECT_FALSE(first.answer.detail.empty());
  EXPECT_LT(first.took, at_most(kBounded));
  EXPECT_GE(first.took, at_least);
  Answer second = client.call(get("two"), never());
  if (second.fault == Fault::timeout) second = client.call(get("two"), never());  // the machine was busy
  EXPECT_EQ(second.fault, Fault::none) << second.detail;
  EXPECT_EQ(second.reply.text, "value of two");
  const auto status = client.status();
  EXPECT_EQ(status.at(0).count(fault), 1u);
  EXPECT_EQ(status.at(0).breaker, Breaker::State::closed);
  EXPECT_NE(status.at(0).last_error, "");
}

}  // namespace kiln::fleet::test
