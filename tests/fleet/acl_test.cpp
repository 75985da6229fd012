// docs/fleet/users.acl and redis.conf on a real server: each command that a user needs works, and every other
// command of the server is refused. docs/guide/fleet/permissions.md repeats the sentences of this file.
#include <gtest/gtest.h>

#include "cache/fleet/redis/lease_commands.hpp"
#include "cache/fleet/tier.hpp"
#include "tests/fleet/acl_fixture.hpp"

using namespace kiln;
using namespace kiln::fleet;

namespace {

const std::string kRenew = "eval|" + small(std::string(kRenewScript)),
                  kRelease = "eval|" + small(std::string(kReleaseScript));
const std::set<std::string> kConnecting = {"ping", "select", "asking", "cluster|slots"};

std::set<std::string> with(std::set<std::string> some, const std::set<std::string>& more) {
  some.insert(more.begin(), more.end());
  return some;
}
const std::set<std::string> kLocked = with(kConnecting, {"get", "mget", "hgetall", "xadd"});
const std::set<std::string> kFleet =
    with(kConnecting, {"get", "mget", "hgetall", "set", "hset", kRenew, kRelease});
const std::set<std::string> kPrewarm = with(kFleet, {"xrange", "xlen", "xdel", "xtrim"});
const std::set<std::string> kOperator =
    with(kConnecting, {"info", "dbsize", "scan", "exists", "get", "getrange", "hgetall", "mget", "strlen",
                       "xlen", "xrange", "hdel", "unlink", "xdel", "xtrim"});

const std::map<std::string, std::set<std::string>> kAllowed = {{"kiln-locked", kLocked},
                                                               {"kiln-fleet", kFleet},
                                                               {"kiln-prewarm", kPrewarm},
                                                               {"kiln-operator", kOperator}};

}  // namespace

TEST_F(Acl, AllowsExactlyTheseCommands) {
  for (const auto& [user, commands] : kAllowed) EXPECT_EQ(allowed_to(user), commands) << user;
}

TEST_F(Acl, RefusesEveryOtherCommandThatTheServerKnows) {
  const Answer list = ask("admin", {"COMMAND", "LIST"});
  ASSERT_GT(list.reply.elements.size(), 300u);
  // Redis never refuses the commands that a client needs to log in.
  const std::set<std::string> always = {"auth", "hello", "quit", "reset"};
  for (const auto& [user, allowed] : kAllowed) {
    std::size_t refused = 0;
    for (const Reply& name : list.reply.elements) {
      if (always.contains(name.text) || allowed.contains(name.text)) continue;
      const Answer answer = try_command(user, name.text);
      if (answer.detail.starts_with("ERR unknown subcommand")) continue;  // "config" alone is no command
      // Two commands are off for every user. EXEC quotes the refusal inside its own error.
      const bool off = answer.detail.find("command not allowed. If the enable-") != std::string::npos;
      EXPECT_TRUE(off || answer.detail.find("NOPERM") != std::string::npos)
          << user << ": " << name.text << ": " << answer.detail;
      ++refused;
    }
    EXPECT_GT(refused, 300u);
    std::printf("FIGURES %s: %zu commands allowed, %zu refused\n", user.c_str(), allowed.size(), refused);
  }
}

TEST_F(Acl, LetsALockedNodeReadAndReportAndNothingElse) {
  const std::string user = "kiln-locked";
  EXPECT_TRUE(allows(user, {"MGET", kEntry, entry_key(some_key(2))}));
  EXPECT_TRUE(allows(user, {"GET", kEntry}));
  EXPECT_TRUE(allows(user, {"HGETALL", kRows}));
  EXPECT_TRUE(allows(user, {"XADD", kMissing, "MAXLEN", "~", "10000", "*", "row", "text"}));
  EXPECT_TRUE(forbids(user, {"SET", kEntry, "x"}));
  EXPECT_TRUE(forbids(user, {"HSET", kRows, "a", "b"}));
  EXPECT_TRUE(forbids(user, {"SET", kLease, "x", "NX", "PX", "10000"}));
  EXPECT_TRUE(forbids(user, {"MGET", kEntry, kLease}));
  EXPECT_TRUE(forbids(user, {"XADD", kEntry, "*", "row", "text"}));
  EXPECT_TRUE(forbids(user, {"XADD", "kiln:1:missing2", "*", "row", "text"}));
  EXPECT_TRUE(forbids(user, {"XRANGE", kMissing, "-", "+"}));
  EXPECT_TRUE(forbids(user, {"EVAL", std::string(kRenewScript), "1", kLease, "x", "1"}));
}

TEST_F(Acl, LetsALockedNodeLookByTheLeaseProtocol) {
  LeasePolicy policy;
  policy.may_write = false;
  ASSERT_TRUE(allows("kiln-fleet", {"SET", kEntry, "value"}));
  LeaseRound looks(
      {{LeaseRequest::Kind::look, some_key(), {}}, {LeaseRequest::Kind::look, some_key(2), {}}}, policy,
      [](const std::string&) { return 0u; }, 64, 1 << 20);
  const auto answers = looks.read(as("kiln-locked").call(looks.commands(), base::Deadline::after(10s)));
  EXPECT_EQ(answers[0].entry, "value");
  EXPECT_EQ(answers[1].state, LeaseAnswer::State::answered);
  EXPECT_FALSE(answers[1].entry);
}

TEST_F(Acl, LetsAFleetNodeDoAllOfTheLeaseProtocol) {
  const Key key = some_key();
  const std::string ours = "ours", theirs = "theirs";
  const auto round = [&](LeaseRequest::Kind kind, const std::string& token) {
    LeaseRound one(
        {{kind, key, token}}, LeasePolicy(), [](const std::string&) { return 0u; }, 64, 1 << 20);
    auto answer = one.read(as("kiln-fleet").call(one.commands(), base::Deadline::after(10s)))[0];
    EXPECT_EQ(answer.state, LeaseAnswer::State::answered);
    return answer;
  };
  using Kind = LeaseRequest::Kind;
  EXPECT_EQ(round(Kind::look, "").holder, "");
  EXPECT_TRUE(round(Kind::acquire, ours).granted);
  EXPECT_FALSE(round(Kind::acquire, theirs).granted);
  EXPECT_EQ(round(Kind::look, "").holder, ours);
  EXPECT_TRUE(round(Kind::renew, ours).granted);
  EXPECT_FALSE(round(Kind::renew, theirs).granted);
  EXPECT_TRUE(round(Kind::resume, ours).granted);
  EXPECT_FALSE(round(Kind::release, theirs).granted);
  EXPECT_EQ(round(Kind::look, "").holder, ours);
  ASSERT_TRUE(allows("kiln-fleet", {"SET", kEntry, "value"}));
  EXPECT_EQ(round(Kind::look, "").entry, "value");
  EXPECT_TRUE(round(Kind::release, ours).granted);
  EXPECT_TRUE(
      base::poll_until(base::Deadline::after(5s), [&] { return round(Kind::look, "").holder.empty(); }));
  EXPECT_FALSE(round(Kind::renew, ours).granted) << "what was released is not renewed";
  const auto again = round(Kind::acquire, theirs);
  EXPECT_TRUE(again.granted);
  EXPECT_EQ(again.entry, "value") << "who gets the lease sees what was published before";
}

TEST_F(Acl, RenewsALeaseForItsWholeTimeAndLetsItEnd) {
  LeasePolicy brief;
  brief.lease = 300ms;
  const auto send = [&](LeaseRequest::Kind kind) {
    LeaseRound one(
        {{kind, some_key(), "token"}}, brief, [](const std::string&) { return 0u; }, 64, 1 << 20);
    return one.read(as("kiln-fleet").call(one.commands(), base::Deadline::after(10s)))[0].granted;
  };
  ASSERT_TRUE(send(LeaseRequest::Kind::acquire));
  const Answer first = ask("admin", {"PTTL", kLease});
  EXPECT_GT(first.reply.integer, 0);
  EXPECT_LE(first.reply.integer, 300);
  brief.lease = 20s;
  ASSERT_TRUE(send(LeaseRequest::Kind::renew));
  EXPECT_GT(ask("admin", {"PTTL", kLease}).reply.integer, 10'000);
  brief.lease = 50ms;
  ASSERT_TRUE(send(LeaseRequest::Kind::renew));
  EXPECT_TRUE(base::poll_until(base::Deadline::after(5s), [&] {
    return ask("admin", {"EXISTS", kLease}).reply.integer == 0;
  }));
}

TEST_F(Acl, KeepsAFleetNodeFromTouchingALeaseOtherThanByTheProtocol) {
  const std::string user = "kiln-fleet";
  ASSERT_TRUE(allows(user, {"SET", kLease, "theirs", "NX", "PX", "60000"}));
  for (const Words& words : std::vector<Words>{{"PEXPIRE", kLease, "1"},
                                               {"EXPIRE", kLease, "100"},
                                               {"PERSIST", kLease},
                                               {"DEL", kLease},
                                               {"UNLINK", kLease},
                                               {"GETDEL", kLease},
                                               {"GETEX", kLease, "PX", "1"},
                                               {"GETSET", kLease, "ours"},
                                               {"PSETEX", kLease, "1", "ours"},
                                               {"SETNX", kLease, "ours"},
                                               {"APPEND", kLease, "x"},
                                               {"RENAME", kLease, kEntry},
                                               {"COPY", kLease, kEntry},
                                               {"RESTORE", kLease, "0", "x", "REPLACE"},
                                               {"SET", kLease, "ours", "GET"}})
    EXPECT_TRUE(forbids(user, words));
  EXPECT_EQ(ask("admin", {"GET", kLease}).reply.text, "theirs");
  EXPECT_GT(ask("admin", {"PTTL", kLease}).reply.integer, 30'000);
}

TEST_F(Acl, LetsNobodyRunAnotherScript) {
  for (const char* user : {"kiln-locked", "kiln-fleet", "kiln-prewarm", "kiln-operator"}) {
    EXPECT_TRUE(forbids(user, {"EVAL", "return 1", "0"}));
    EXPECT_TRUE(forbids(user, {"EVAL", "while true do end", "1", kLease}));
    EXPECT_TRUE(forbids(user, {"EVAL", std::string(kRenewScript) + ' ', "1", kLease, "x", "1"}));
    EXPECT_TRUE(forbids(user, {"EVAL", std::string(kRenewScript), "1", kEntry, "x", "1"}))
        << "on no other key";
    EXPECT_TRUE(forbids(user, {"EVALSHA", std::string(40, '0'), "0"}));
    EXPECT_TRUE(forbids(user, {"EVAL_RO", "return 1", "0"}));
    EXPECT_TRUE(forbids(user, {"FCALL", "f", "0"}));
    EXPECT_TRUE(forbids(user, {"SCRIPT", "LOAD", "return 1"}));
  }
}

TEST_F(Acl, KeepsWritersToKilnsNames) {
  const std::string long_one = kEntry + "0", other = "kiln:2" + kEntry.substr(6);
  for (const char* user : {"kiln-fleet", "kiln-prewarm"}) {
    EXPECT_TRUE(allows(user, {"SET", kEntry, "x"}));
    EXPECT_TRUE(allows(user, {"HSET", kRows, std::string(32, '0'), "row"}));
    for (const std::string& name :
         {std::string("x"), long_one, other, kRows, kMissing, std::string("kiln:1:")})
      EXPECT_TRUE(forbids(user, {"SET", name, "x"})) << name;
    EXPECT_TRUE(forbids(user, {"HSET", kEntry, "a", "b"}));
    EXPECT_TRUE(forbids(user, {"XADD", kMissing, "*", "row", "text"}));
    EXPECT_TRUE(forbids(user, {"GET", "x"}));
    EXPECT_TRUE(forbids(user, {"GET", kRows}));
  }
}

TEST_F(Acl, LetsThePrewarmJobReadAndShortenWhatWasMissed) {
  ASSERT_TRUE(allows("kiln-locked", {"XADD", kMissing, "MAXLEN", "~", "10000", "*", "row", "text"}));
  const Answer rows = ask("kiln-prewarm", {"XRANGE", kMissing, "-", "+", "COUNT", "100"});
  ASSERT_EQ(rows.reply.elements.size(), 1u);
  EXPECT_TRUE(allows("kiln-prewarm", {"XDEL", kMissing, rows.reply.elements[0].elements[0].text}));
  EXPECT_TRUE(allows("kiln-prewarm", {"XTRIM", kMissing, "MAXLEN", "0"}));
  EXPECT_TRUE(forbids("kiln-fleet", {"XRANGE", kMissing, "-", "+"}));
}

TEST_F(Acl, LetsTheOperatorPruneAndNotWrite) {
  ASSERT_TRUE(allows("kiln-fleet", {"SET", kEntry, "x"}));
  for (const Words& words : std::vector<Words>{{"SCAN", "0", "MATCH", "kiln:1:*", "COUNT", "1000"},
                                               {"INFO"},
                                               {"DBSIZE"},
                                               {"EXISTS", "kiln:1:{0}:probe"},
                                               {"STRLEN", kEntry},
                                               {"GETRANGE", kEntry, "0", "100"},
                                               {"MGET", kEntry},
                                               {"XLEN", kMissing},
                                               {"HDEL", kRows, std::string(32, '0')},
                                               {"UNLINK", kEntry}})
    EXPECT_TRUE(allows("kiln-operator", words));
  EXPECT_EQ(ask("admin", {"EXISTS", kEntry}).reply.integer, 0);
  EXPECT_TRUE(forbids("kiln-operator", {"SET", kEntry, "x"}));
  EXPECT_TRUE(allows("kiln-operator", {"UNLINK", "kiln:0:of a former version"}));
  EXPECT_TRUE(forbids("kiln-operator", {"UNLINK", "another's"}));
  EXPECT_TRUE(forbids("kiln-operator", {"FLUSHALL"}));
}

/// These are limits of Redis's ACLs, which docs/guide/fleet/permissions.md states, too.
TEST_F(Acl, CannotSeeOptionsValuesOrDatabases) {
  ASSERT_TRUE(allows("kiln-fleet", {"SET", kLease, "theirs", "NX", "PX", "60000"}));
  EXPECT_TRUE(allows("kiln-fleet", {"SET", kLease, "ours", "XX", "PX", "60000"}));
  EXPECT_EQ(ask("admin", {"GET", kLease}).reply.text, "ours") << "SET cannot be restricted by its options";
  EXPECT_TRUE(allows("kiln-fleet", {"SET", kEntry, "garbage"})) << "nor can what is in a value";
  EXPECT_TRUE(allows("kiln-fleet", {"SELECT", "3"})) << "nor the database";
  EXPECT_TRUE(allows("kiln-locked", {"XADD", kMissing, "*", "row", "text"}))
      << "nor the length of the stream";
}

TEST_F(Acl, ConfiguresACacheThatForgets) {
  const auto value = [&](const char* name) {
    const Answer answer = ask("admin", {"CONFIG", "GET", name});
    return answer.reply.elements.size() == 2 ? answer.reply.elements[1].text : "?";
  };
  EXPECT_EQ(value("maxmemory-policy"), "allkeys-lfu");
  EXPECT_EQ(value("save"), "");
  EXPECT_EQ(value("appendonly"), "no");
  EXPECT_EQ(value("maxmemory"), std::to_string(std::uint64_t{8} << 30));
  // A full server evicts entries and accepts new ones. The limit for clients is turned off, as a share of
  // this small memory would be too little for a client.
  ASSERT_TRUE(ask("admin", {"CONFIG", "SET", "maxmemory-clients", "0"}));
  const std::int64_t used = std::stoll([&] {
    const std::string info = ask("admin", {"INFO", "memory"}).reply.text;
    return info.substr(info.find("used_memory:") + 12);
  }());
  ASSERT_TRUE(ask("admin", {"CONFIG", "SET", "maxmemory", std::to_string(used + (8 << 20))}));
  const std::string megabyte(1 << 20, 'x');
  for (std::uint8_t number = 0; number < 40; ++number) {
    const Answer answer = ask("kiln-fleet", {"SET", entry_key(some_key(number)), megabyte});
    ASSERT_TRUE(answer) << answer.detail;
  }
  EXPECT_LT(ask("admin", {"DBSIZE"}).reply.integer, 20);
}

TEST_F(Acl, TakesNoValueBeyondTheLimit) {
  EXPECT_TRUE(ask("kiln-fleet", {"SET", kEntry, std::string(std::size_t{16} << 20, 'x')}));
  EXPECT_FALSE(ask("kiln-fleet", {"SET", kEntry, std::string(std::size_t{18} << 20, 'x')}));
}

TEST_F(Acl, EndsNoConnectionOverManyLargeEntriesFetchedAtOnce) {
  const std::string value(std::size_t{9} << 20, 'x');
  std::vector<Asked> asked;
  for (std::uint8_t number = 0; number < 16; ++number) {
    ASSERT_TRUE(ask("kiln-fleet", {"SET", entry_key(some_key(number)), value}));
    asked.push_back({some_key(number), "text"});
  }
  TierOptions options;
  options.url = Url::parse("redis+unix://" + socket() + "?user=kiln-locked&password=of-the-test");
  options.timeouts = {.connect = 5s, .read = 20s};  // 36 MB in one answer, on any machine
  Tier tier(std::move(options), std::make_shared<Counts>());
  for (const auto& fetched : tier.fetch(asked, base::Deadline::never())) {
    EXPECT_EQ(fetched.fault, Fault::none) << fetched.detail;
    EXPECT_EQ(fetched.rejection, Rejection::malformed) << "it came whole";
  }
}

class AclAsShipped : public Acl {
 protected:
  AclAsShipped() { give_passwords_ = false; }
};

TEST_F(AclAsShipped, LetsNobodyInBeforeAPasswordIsSet) {
  for (const auto& [user, commands] : kAllowed) {
    const Answer answer = ask(user, {"PING"});
    EXPECT_EQ(answer.fault, Fault::auth) << user << ' ' << name_of(answer.fault) << ' ' << answer.detail;
  }
  EXPECT_FALSE(ask("admin", {"PING"}));
  EXPECT_FALSE(ask("", {"PING"})) << "the default user is off";
}
