// The lease protocol step by step. tests/fleet/lease_simulation_test.cpp runs all of it.
#include "cache/fleet/lease.hpp"

#include <gtest/gtest.h>

#include "tests/fleet/trust_fixture.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace std::chrono_literals;
using Kind = LeaseRequest::Kind;
using State = LeaseAnswer::State;
using Why = LeaseDecision::Why;

namespace {

using kiln::testing::numbered_key;

class Lease : public ::testing::Test {
 protected:
  Leases make(LeasePolicy policy = {}) {
    return Leases(
        policy, "host:1 \x1b[31m", [this] { return random_ += 0x9e3779b97f4a7c15; },
        [](const Key&, const std::string& bytes) { return bytes == "good"; });
  }
  /// The only request that is due.
  LeaseRequest one(Leases& leases) {
    const auto due = leases.due(now_);
    EXPECT_EQ(due.size(), 1u);
    return due.empty() ? LeaseRequest() : due[0];
  }
  static LeaseAnswer nothing() { return {State::answered, {}, "", false}; }
  static LeaseAnswer holder(std::string token) { return {State::answered, {}, std::move(token), false}; }
  static LeaseAnswer granted() { return {State::answered, {}, "", true}; }
  static LeaseAnswer entry(std::string bytes) { return {State::answered, std::move(bytes), "", false}; }
  static LeaseAnswer silence() { return {}; }
  static LeaseAnswer refusal() { return {State::refused, {}, "", false}; }

  void answer(Leases& leases, Kind expected, LeaseAnswer answer) {
    const LeaseRequest request = one(leases);
    EXPECT_EQ(request.kind, expected);
    leases.answered(request, std::move(answer), now_);
  }
  Why decided(Leases& leases) {
    const auto decisions = leases.take_decisions();
    EXPECT_EQ(decisions.size(), 1u);
    return decisions.empty() ? Why::served : decisions[0].why;
  }
  /// Advances the clock to the next thing to do, and returns the time that passed.
  Span wait(Leases& leases) {
    const auto next = leases.next();
    EXPECT_TRUE(next);
    const Span out = next ? *next - now_ : Span{};
    if (next) now_ = *next;
    return out;
  }

  Time now_ = Time(1000h);
  std::uint64_t random_ = 1;
};

}  // namespace

TEST_F(Lease, ServesWhatIsThere) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, entry("good"));
  EXPECT_EQ(decided(leases), Why::served);
  EXPECT_FALSE(leases.next());
}

TEST_F(Lease, CompilesUnderItAndGivesItBack) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, nothing());
  const LeaseRequest acquire = one(leases);
  EXPECT_EQ(acquire.kind, Kind::acquire);
  EXPECT_EQ(acquire.token.size(), 32 + 1 + std::string("host:1 \x1b[31m").size());
  EXPECT_EQ(acquire.token.substr(32), ":host:1???31m") << "fit for a terminal";
  leases.answered(acquire, granted(), now_);
  EXPECT_EQ(decided(leases), Why::leased);
  EXPECT_EQ(wait(leases), 3s);
  answer(leases, Kind::renew, granted());
  EXPECT_EQ(wait(leases), 3s);
  answer(leases, Kind::renew, granted());
  leases.done(numbered_key(1), now_);
  const LeaseRequest release = one(leases);
  EXPECT_EQ(release.kind, Kind::release);
  EXPECT_EQ(release.token, acquire.token);
  leases.answered(release, granted(), now_);
  EXPECT_FALSE(leases.next());
  EXPECT_EQ(leases.held(), 0u);
}

TEST_F(Lease, AnEntryThatDoesNotVerifyIsNone) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, entry("bad"));
  answer(leases, Kind::acquire, {State::answered, "bad", "", true});
  EXPECT_EQ(decided(leases), Why::leased);
}

TEST_F(Lease, LooksAgainOnceItHasTheLease) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, nothing());
  answer(leases, Kind::acquire, {State::answered, "good", "", true});
  EXPECT_EQ(decided(leases), Why::served);
  EXPECT_EQ(one(leases).kind, Kind::release);
}

TEST_F(Lease, WaitsAQuarterOfTheTimeWaitedAtLeast50Milliseconds) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  const Time began = now_;
  answer(leases, Kind::look, holder("theirs"));
  int polls = 0;
  while (leases.take_decisions().empty()) {
    const double waited = std::chrono::duration<double>(now_ - began).count();
    const double expected = std::max(0.05, waited * 0.25),
                 pause = std::chrono::duration<double>(wait(leases)).count();
    if (std::chrono::duration<double>(now_ - began).count() < 59.9) {
      EXPECT_GE(pause, 0.8 * expected - 1e-6);
      EXPECT_LE(pause, 1.2 * expected + 1e-6);
    }
    const auto due = leases.due(now_);
    if (due.empty()) break;
    ++polls;
    leases.answered(due[0], holder("theirs"), now_);
  }
  EXPECT_EQ(now_ - began, 60s) << "to the end of the budget, and no longer";
  EXPECT_EQ(leases.counts().budget, 1u);
  EXPECT_GT(polls, 15);
  EXPECT_LT(polls, 40);
}

TEST_F(Lease, AServerThatShowsALeaseForEverCostsThreeBudgets) {
  Leases leases = make();
  std::uint8_t key = 0;
  // Wants the next key while the server shows a lease that never ends. Returns the
  // decision and the time it took.
  const auto next_key = [&] {
    const Time began = now_;
    leases.want(numbered_key(++key), now_);
    while (leases.held() == 0) {
      for (const LeaseRequest& look : leases.due(now_)) leases.answered(look, holder("theirs"), now_);
      const auto decisions = leases.take_decisions();
      if (!decisions.empty()) return std::pair(decisions[0].why, now_ - began);
      wait(leases);
    }
    return std::pair(Why::leased, now_ - began);
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(next_key(), std::pair(Why::budget, Span(60s)));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(next_key(), std::pair(Why::hopeless, Span(0s)));
  now_ += 10min;
  EXPECT_EQ(next_key(), std::pair(Why::budget, Span(60s))) << "once more";
  EXPECT_EQ(next_key(), std::pair(Why::hopeless, Span(0s)));
  now_ += 10min;
  leases.want(numbered_key(100), now_);
  answer(leases, Kind::look, holder("theirs"));
  wait(leases);
  answer(leases, Kind::look, entry("good"));
  EXPECT_EQ(decided(leases), Why::served) << "and all is forgiven";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(next_key().first, Why::budget);
  EXPECT_EQ(next_key().first, Why::hopeless);
  EXPECT_EQ(leases.counts().hopeless, 22u);
}

TEST_F(Lease, KeysThatAreWaitedForTogetherSpendOneBudget) {
  Leases leases = make();
  for (std::uint8_t i = 0; i < 100; ++i) leases.want(numbered_key(i), now_);
  while (leases.counts().budget < 100) {
    for (const LeaseRequest& look : leases.due(now_)) leases.answered(look, holder("theirs"), now_);
    if (leases.next()) wait(leases);
  }
  leases.take_decisions();
  leases.want(numbered_key(200), now_);
  answer(leases, Kind::look, holder("theirs"));
  EXPECT_TRUE(leases.waits_for_another(numbered_key(200)));
}

TEST_F(Lease, AllKeysOfAWaiterAreAskedForTogether) {
  Leases leases = make();
  for (std::uint8_t i = 0; i < 100; ++i) leases.want(numbered_key(i), now_);
  auto due = leases.due(now_);
  ASSERT_EQ(due.size(), 100u);
  for (int round = 0; round < 20; ++round) {
    for (const auto& request : due) leases.answered(request, holder("theirs"), now_);
    wait(leases);
    due = leases.due(now_);
    ASSERT_EQ(due.size(), 100u) << "in round " << round;
    for (const auto& request : due) ASSERT_EQ(request.kind, Kind::look);
  }
}

TEST_F(Lease, TakesOverWhenTheLeaseIsGone) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, holder("dead"));
  wait(leases);
  answer(leases, Kind::look, nothing());
  answer(leases, Kind::acquire, granted());
  EXPECT_EQ(decided(leases), Why::leased);
  EXPECT_EQ(leases.counts().takeovers, 1u);
}

TEST_F(Lease, FindsItsOwnAcquireWhoseAnswerWasLost) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, nothing());
  const LeaseRequest acquire = one(leases);
  leases.answered(acquire, silence(), now_);
  wait(leases);
  answer(leases, Kind::look, holder(acquire.token));
  const LeaseRequest resume = one(leases);
  EXPECT_EQ(resume.kind, Kind::resume);
  EXPECT_EQ(resume.token, acquire.token);
  leases.answered(resume, granted(), now_);
  EXPECT_EQ(decided(leases), Why::leased);
}

TEST_F(Lease, ASilentServerIsNotWaitedForByWhoNeverHeardOfIt) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, silence());
  EXPECT_EQ(decided(leases), Why::unanswered);
  EXPECT_EQ(leases.held(), 1u) << "should it come back, the others may wait for this compile";
  EXPECT_EQ(wait(leases), 3s);
  answer(leases, Kind::renew, nothing());
  answer(leases, Kind::regain, granted());
  EXPECT_EQ(leases.counts().regained, 1u);
}

TEST_F(Lease, AWaiterBearsTwoSilencesAndNotThree) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, holder("theirs"));
  for (int i = 0; i < 2; ++i) {
    wait(leases);
    answer(leases, Kind::look, silence());
    EXPECT_TRUE(leases.take_decisions().empty());
  }
  wait(leases);
  answer(leases, Kind::look, silence());
  EXPECT_EQ(decided(leases), Why::unanswered);
}

TEST_F(Lease, LooksThatAreAnsweredMakeUpForNoAcquire) {
  Leases leases = make();
  leases.want(numbered_key(1), now_, Leases::Start::acquire);
  for (int i = 0; i < 2; ++i) {
    answer(leases, Kind::acquire, silence());
    EXPECT_TRUE(leases.take_decisions().empty());
    wait(leases);
    answer(leases, Kind::look, nothing());
  }
  answer(leases, Kind::acquire, silence());
  EXPECT_EQ(decided(leases), Why::unanswered) << "reads are answered, writes are not";
}

TEST_F(Lease, ALostLeaseIsAskedForOnceMoreAndThenLeftAlone) {
  Leases leases = make();
  leases.want(numbered_key(1), now_, Leases::Start::acquire);
  answer(leases, Kind::acquire, granted());
  EXPECT_EQ(decided(leases), Why::leased);
  wait(leases);
  answer(leases, Kind::renew, nothing());
  answer(leases, Kind::regain, nothing());
  EXPECT_EQ(leases.counts().lost, 1u);
  EXPECT_FALSE(leases.next());
  leases.done(numbered_key(1), now_);
  EXPECT_TRUE(leases.due(now_).empty()) << "what is another's is not released";
}

TEST_F(Lease, AnUnansweredRenewalIsSentAgainSoon) {
  Leases leases = make();
  leases.want(numbered_key(1), now_, Leases::Start::acquire);
  answer(leases, Kind::acquire, granted());
  wait(leases);
  answer(leases, Kind::renew, silence());
  EXPECT_EQ(wait(leases), 1s);
  answer(leases, Kind::renew, granted());
  EXPECT_EQ(wait(leases), 3s);
}

TEST_F(Lease, ARefusedRenewalIsSentAgainUntilTheServerTakesIt) {
  Leases leases = make();
  leases.want(numbered_key(1), now_, Leases::Start::acquire);
  answer(leases, Kind::acquire, granted());
  wait(leases);
  answer(leases, Kind::renew, refusal());  // the server is out of memory, is loading, or is a replica by now
  EXPECT_EQ(wait(leases), 1s);
  answer(leases, Kind::renew, nothing());  // the lease ended meanwhile
  answer(leases, Kind::regain, refusal());
  EXPECT_EQ(wait(leases), 1s);
  answer(leases, Kind::regain, granted());
  EXPECT_EQ(wait(leases), 3s);
  EXPECT_EQ(leases.counts().regained, 1u);
  answer(leases, Kind::renew, refusal());
  leases.done(numbered_key(1), now_);
  EXPECT_EQ(one(leases).kind, Kind::release) << "whether it goes on, nobody knows";
  EXPECT_EQ(leases.counts().lost, 1u) << "it had not been renewed when the compile ended";
}

TEST_F(Lease, TwoHoldersThatEndWithoutAnEntryAreEnough) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, holder("first"));
  wait(leases);
  answer(leases, Kind::look, holder("second"));
  wait(leases);
  answer(leases, Kind::look, holder("third"));
  EXPECT_EQ(decided(leases), Why::convoy);
}

TEST_F(Lease, AReadOnlyNodeLooksOnce) {
  LeasePolicy policy;
  policy.may_write = false;
  Leases leases = make(policy);
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, holder("theirs"));
  EXPECT_EQ(decided(leases), Why::read_only);
  leases.want(numbered_key(2), now_, Leases::Start::acquire);
  EXPECT_EQ(decided(leases), Why::read_only);
  EXPECT_FALSE(leases.next());
}

TEST_F(Lease, ARefusalIsTheEndOfIt) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, nothing());
  answer(leases, Kind::acquire, refusal());
  EXPECT_EQ(decided(leases), Why::refused);
  leases.want(numbered_key(2), now_);
  answer(leases, Kind::look, refusal());
  EXPECT_EQ(decided(leases), Why::refused);
  EXPECT_FALSE(leases.next());
}

TEST_F(Lease, WithoutABudgetItAsksOnceAndWaitsForNobody) {
  LeasePolicy policy;
  policy.budget = 0s;
  Leases leases = make(policy);
  leases.want(numbered_key(1), now_);
  answer(leases, Kind::look, holder("theirs"));
  EXPECT_TRUE(leases.due(now_).empty());
  EXPECT_EQ(decided(leases), Why::budget);
  leases.want(numbered_key(2), now_);
  answer(leases, Kind::look, nothing());
  answer(leases, Kind::acquire, granted());
  EXPECT_EQ(decided(leases), Why::leased);
}

TEST_F(Lease, WhoGoesGivesBackWhatMayBeHis) {
  Leases leases = make();
  leases.want(numbered_key(1), now_, Leases::Start::acquire);
  leases.want(numbered_key(2), now_);
  for (const auto& request : leases.due(now_))
    leases.answered(request, request.kind == Kind::acquire ? silence() : holder("theirs"), now_);
  leases.want(numbered_key(3), now_, Leases::Start::acquire);
  answer(leases, Kind::acquire, granted());
  leases.abandon(now_);
  const auto due = leases.due(now_);
  ASSERT_EQ(due.size(), 2u);
  for (const auto& request : due) EXPECT_EQ(request.kind, Kind::release);
  for (int tries = 0; tries < 3; ++tries) {
    const auto again = tries == 0 ? due : leases.due(now_);
    for (const auto& request : again) leases.answered(request, silence(), now_);
    now_ += 1s;
  }
  EXPECT_FALSE(leases.next()) << "three tries, and the lease ends by itself";
}

TEST_F(Lease, AnAnswerThatComesTooLateIsNobodys) {
  Leases leases = make();
  leases.want(numbered_key(1), now_);
  const LeaseRequest look = one(leases);
  leases.forget(numbered_key(1), now_);
  leases.answered(look, entry("good"), now_);
  EXPECT_TRUE(leases.take_decisions().empty());
}
