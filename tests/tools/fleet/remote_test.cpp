// The fleet's tier between nodes: which node compiles, which one fetches, and what the commands report.
#include <csignal>
#include <sstream>

#include "support/nightly.hpp"
#include "support/places.hpp"
#include "support/time_limit.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

using namespace std::chrono_literals;

TEST_F(Fleet, OneNodeCompilesAndAnotherFetches) {
  const auto a = kiln(compile(3), node("a")).json();
  const auto b = kiln(compile(3), node("b")).json();
  EXPECT_EQ(a["outcome"], "compiled");
  EXPECT_EQ(b["outcome"], "remote");
  EXPECT_EQ(a["key"], b["key"]);
  EXPECT_EQ(a["cubin_bytes"], b["cubin_bytes"]);
  EXPECT_EQ(kiln(compile(3), node("b")).json()["outcome"], "disk") << "it was published locally";
  const auto of_a = counts(node("a")), of_b = counts(node("b"));
  EXPECT_EQ(of_a["remote_misses"]["absent"], 1);
  EXPECT_EQ(of_a["remote_puts"]["stored"], 1);
  EXPECT_EQ(of_a["remote"]["leases"], 1);
  EXPECT_EQ(of_b["hits"]["remote"], 1);
  EXPECT_EQ(of_b["compiles"], 0);
  EXPECT_TRUE(leases_given_back());
}

TEST_F(Fleet, WithoutTheSettingNothingIsAsked) {
  Environment off = node("a");
  off.erase("KILN_REMOTE");
  EXPECT_EQ(kiln(compile(3), off).json()["outcome"], "compiled");
  EXPECT_TRUE(names("*").empty());
  EXPECT_EQ(counts(off)["remote_misses"]["absent"], 0);
}

TEST_F(Fleet, AReaderReadsAndReportsWhatItMisses) {
  kiln(compile(3), node("a"));
  EXPECT_EQ(kiln(compile(3), reader("b")).json()["outcome"], "remote");
  EXPECT_EQ(kiln(compile(4), reader("b")).json()["outcome"], "compiled");
  EXPECT_EQ(entries(), 1u) << "a reader writes no entry";
  EXPECT_EQ(counts(reader("b"))["remote"]["reported"], 1);
  EXPECT_EQ(ask({"XLEN", "kiln:1:missing"}).integer, 1);

  Environment job = node("job");
  job.erase("KILN_REMOTE_MODE");  // a job writes because its command says so
  const Finished made = kiln({"prewarm", "--remote", "--missed", "--json"}, job);
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.json()["remote"]["pushed"], 1);
  EXPECT_EQ(ask({"XLEN", "kiln:1:missing"}).integer, 0) << "what was made is forgotten";
  EXPECT_EQ(kiln(compile(4), reader("c")).json()["outcome"], "remote");
}

TEST_F(Fleet, ReportedRowsAreNotBelieved) {
  const std::vector<std::string> rows = {
      "[[prewarm]]\ntemplate = \"scale\"\nN = { from = 1, to = 60, step = 1 }\n# end\n",  // many in one row
      "[[prewarm]]\ntemplate = \"nobody\"\nN = \"3\"\n# end\n",
      "[[prewarm]]\ntemplate = \"scale\"\nN = \"3\"; system\n# end\n",
      "[[prewarm]]\ntemplate = \"scale\"\narch = \"sm_90a\"\nN = \"5000\"\n# end\n",
      "\x1b[2J",
      std::string(100'000, 'x'),
      "[[prewarm]]\ntemplate = \"scale\"\narch = \"sm_90a\"\nN = \"7\"\nFLAG = \"false\"\n# end\n"};
  for (const std::string& row : rows) ask({"XADD", "kiln:1:missing", "*", "row", row});
  ask({"XADD", "kiln:1:missing", "*", "column", "1"});
  const Finished made = kiln({"prewarm", "--remote", "--missed", "--json"}, node("job"));
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.json()["total"], 1) << "the last one";
  EXPECT_NE(made.err.find("7 reported rows were left out"), std::string::npos) << made.err;
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Fleet, WithoutAKeyTheTierIsOffAndSaysWhatToDo) {
  Environment keyless = reader("a");
  keyless.erase("KILN_REMOTE_KEY");
  const Finished done = kiln(compile(3), keyless);
  EXPECT_EQ(done.json()["outcome"], "compiled");
  EXPECT_NE(done.err.find("KILN_REMOTE_KEY"), std::string::npos) << done.err;
  EXPECT_EQ(ask({"XLEN", "kiln:1:missing"}).integer, 0);
}

TEST_F(Fleet, WhatAnotherKeySignedIsRejectedAndReplaced) {
  Environment stranger = node("stranger");
  stranger["KILN_REMOTE_SIGN"] = path("other.key");
  kiln(compile(3), stranger);
  EXPECT_EQ(kiln(compile(3), node("a")).json()["outcome"], "compiled");
  EXPECT_EQ(counts(node("a"))["remote_rejected"]["signature"], 1);
  EXPECT_EQ(kiln(compile(3), node("b")).json()["outcome"], "remote") << "a has written it anew";
  // A reader trusts both keys while a key is rotated.
  Environment both = reader("c");
  both["KILN_REMOTE_KEY"] = path("other.pub") + ',' + path("fleet.pub");
  kiln(compile(4), stranger);
  EXPECT_EQ(kiln(compile(3), both).json()["outcome"], "remote");
  EXPECT_EQ(kiln(compile(4), both).json()["outcome"], "remote");
}

TEST_F(Fleet, TwoNodesAtOnceMakeOneCompile) {
  Environment a = node("a"), b = node("b");
  a["KILN_WORKER"] = b["KILN_WORKER"] = held_worker("go");
  const auto first = start(compile(3), a);
  ASSERT_TRUE(comes_true([&] { return names("kiln:1:*:l:*").size() == 1; }));
  const auto second = start(compile(3), b);
  ASSERT_TRUE(comes_true([&] {
    return kiln({"top", "--json"}, b).out.find("\"state\": \"fleet\"") != std::string::npos;
  })) << "kiln top shows who waits for another node";
  release("go");
  EXPECT_EQ(first->wait().json()["outcome"], "compiled");
  EXPECT_EQ(second->wait().json()["outcome"], "remote");
  EXPECT_EQ(counts(b)["remote"]["waits"], 1);
  EXPECT_EQ(counts(b)["compiles"], 0);
  EXPECT_TRUE(leases_given_back());
}

TEST_F(Fleet, AKilledNodesLeaseEndsAndTheWaitingOneTakesOver) {
  KILN_NIGHTLY_ONLY();
  Environment a = node("a"), b = node("b");
  a["KILN_WORKER"] = held_worker("never");
  auto first = start(compile(3), a);
  ASSERT_TRUE(comes_true([&] { return names("kiln:1:*:l:*").size() == 1; }));
  const auto second = start(compile(3), b);
  ASSERT_TRUE(comes_true([&] {
    return counts(b)["remote"].is_object() && ask({"CLIENT", "LIST"}).text.size();
  }));
  std::this_thread::sleep_for(300ms);
  first->send(SIGKILL);
  const auto killed = base::Clock::now();
  EXPECT_EQ(second->wait().json()["outcome"], "compiled");
  const auto took = base::Clock::now() - killed;
  EXPECT_LT(took, at_most(16s)) << "a lease of 10 s, and a quarter of the wait until it is seen";
  EXPECT_EQ(counts(b)["remote"]["takeovers"], 1);
  RecordProperty("takeover_ms",
                 std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  EXPECT_EQ(kiln(compile(3), node("c")).json()["outcome"], "remote");
}

TEST_F(Fleet, AFailedCompileGivesTheLeaseBack) {
  Environment a = node("a");
  EXPECT_EQ(kiln({"compile", "picky", "N=2", "--json"}, a).status, 1);
  EXPECT_TRUE(leases_given_back());
  EXPECT_EQ(entries(), 0u);
}

TEST_F(Fleet, AWaiterPastItsBudgetCompiles) {
  Environment a = node("a"), b = node("b");
  a["KILN_WORKER"] = held_worker("go");
  b["KILN_REMOTE_BUDGET"] = "1";
  const auto first = start(compile(3), a);
  ASSERT_TRUE(comes_true([&] { return names("kiln:1:*:l:*").size() == 1; }));
  EXPECT_EQ(kiln(compile(3), b).json()["outcome"], "compiled");
  EXPECT_EQ(counts(b)["remote"]["wait_timeouts"], 1);
  release("go");
  first->wait();
}

TEST_F(Fleet, UnpublishableKernelsNeverReachTheTier) {
  write("templates/dated.toml",
        "format = 1\n[template]\nname = \"dated\"\nsource = \"dated.cu\"\ninstantiate = \"dated<{N}>\"\n"
        "[param.N]\nkind = \"int\"\nrange = [1, 9]\n[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n");
  write("templates/dated.cu",
        "template <int N> __global__ void dated(const char** out) { *out = __TIME__; }\n");
  const auto done = kiln({"compile", "dated", "N=1", "--json"}, node("a")).json();
  EXPECT_FALSE(done["unpublishable"].is_null()) << done.dump(2);
  EXPECT_TRUE(names("*").empty());
}

TEST_F(Fleet, ASlimHostFindsWhatAnotherToolchainMade) {
  kiln(compile(3), node("a"));
  Environment slim = reader("slim");
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"}) slim[name] = "";
  slim["KILN_CUDA_HOME"] = path("nothing");
  const Finished done = kiln(compile(3), slim);
  if (done.status == 0 && done.json()["outcome"] == "compiled")
    GTEST_SKIP() << "a compiler is found wherever one looks on this machine";
  EXPECT_EQ(done.json()["outcome"], "remote") << done.err;
}

TEST_F(Fleet, ASealedServiceAsksOnlyWhenToldTo) {
  kiln(compile(3), node("a"));
  Environment sealed = reader("b");
  sealed["KILN_MODE"] = "sealed";
  EXPECT_EQ(kiln(compile(3), sealed).json()["error"]["code"], "not_ready");
  sealed["KILN_REMOTE_SEALED"] = "ask";
  EXPECT_EQ(kiln(compile(3), sealed).json()["outcome"], "remote");
  EXPECT_EQ(kiln(compile(4), sealed).json()["error"]["code"], "not_ready") << "it never compiles";
}

TEST_F(FleetCommand, WithoutOpenSslAKernelIsServedAndTheReasonSaidOnce) {
  ::mkdir(path("broken").c_str(), 0755);
  for (const char* name : {"libssl.so.3", "libcrypto.so.3"}) write("broken/" + std::string(name), "");
  for (const auto& of :
       {FleetCommand::reader("a", "rediss://127.0.0.1:1"), node("b", "rediss://127.0.0.1:1")}) {
    Environment without = of;
    without["LD_LIBRARY_PATH"] = path("broken");
    const Finished done = kiln(compile(3), without);
    EXPECT_EQ(done.json()["outcome"], "compiled");
    const std::string says = "cannot be read by this node: TLS needs OpenSSL 3: ";
    EXPECT_NE(done.err.find(says), std::string::npos) << done.err;
    EXPECT_EQ(done.err.find(says), done.err.rfind(says)) << done.err;
  }
}

// ---- commands

TEST_F(Fleet, StatusSaysWhoAnswersAndWhoDoesNot) {
  kiln(compile(3), node("a"));
  const auto up = kiln({"remote", "status", "--json"}, node("a")).json();
  EXPECT_EQ(up["ok"], true);
  EXPECT_EQ(up["writes"], true);
  ASSERT_EQ(up["servers"].size(), 1u);
  EXPECT_GE(up["servers"][0]["keys"], 2);
  EXPECT_GT(up["servers"][0]["round_trip_ms"].get<double>(), 0);
  EXPECT_FALSE(up["servers"][0]["advice"].empty()) << "no maxmemory";
  EXPECT_EQ(kiln({"remote", "status", "--strict"}, node("a")).status, 0);
  server_->stop();
  const Finished down = kiln({"remote", "status", "--json"}, node("a"));
  EXPECT_EQ(down.status, 0);
  EXPECT_EQ(down.json()["servers"][0]["fault"], "connect");
  EXPECT_EQ(kiln({"remote", "status", "--strict"}, node("a")).status, 5);
  EXPECT_EQ(kiln({"remote", "status"}).status, 2) << "no tier is configured";
}

TEST_F(Fleet, PushAndPullCarryEntries) {
  Environment off = node("a");
  off.erase("KILN_REMOTE");
  for (const int n : {3, 4, 5}) kiln(compile(n), off);
  EXPECT_EQ(kiln({"remote", "push", "--all"}, reader("a")).status, 2) << "no key to sign with";
  const auto pushed = kiln({"remote", "push", "--all", "--json"}, node("a")).json();
  EXPECT_EQ(pushed["pushed"], 3);
  const auto again = kiln({"remote", "push", "--all", "--json"}, node("a")).json();
  EXPECT_EQ(again["pushed"], 0);
  EXPECT_EQ(again["present"], 3);
  EXPECT_EQ(kiln(compile(4), reader("b")).json()["outcome"], "remote");
  const auto pulled = kiln({"remote", "pull", "--all", "--json"}, reader("c")).json();
  EXPECT_EQ(pulled["stored"], 3);
  Environment c_alone = reader("c");
  c_alone.erase("KILN_REMOTE");
  EXPECT_EQ(kiln(compile(5), c_alone).json()["outcome"], "disk");
  const Finished layer =
      kiln({"remote", "pull", "-t", "scale", "--layer", path("layer"), "--json"}, reader("d"));
  EXPECT_EQ(layer.json()["stored"], 3) << layer.err;
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [3, 9]\n");
  const Finished planned = kiln({"remote", "pull", path("plan.toml"), "--json"}, reader("e"));
  EXPECT_EQ(planned.status, 3);
  EXPECT_EQ(planned.json()["missing"].size(), 1u);
  server_->stop();
  EXPECT_EQ(kiln({"remote", "push", "--all"}, node("a")).status, 3);
  EXPECT_EQ(kiln({"remote", "push", "--all", "--strict"}, node("a")).status, 5);
  EXPECT_EQ(kiln({"remote", "pull", "--all", "--strict"}, reader("c")).status, 5);
}

TEST_F(Fleet, PushWritesARowThatTheServerHasEvicted) {
  EXPECT_EQ(kiln(compile(4), node("a")).json()["outcome"], "compiled");
  ASSERT_EQ(names("kiln:1:*:t").size(), 1u);
  EXPECT_EQ(kiln({"remote", "push", "--all", "--json"}, node("a")).json()["present"], 1);
  ask({"DEL", names("kiln:1:*:t").front()});
  const Finished pushed = kiln({"remote", "push", "--all", "--json"}, node("a"));
  EXPECT_EQ(pushed.status, 0) << pushed.err;
  EXPECT_EQ(pushed.json()["pushed"], 1);
  EXPECT_EQ(names("kiln:1:*:t").size(), 1u);
}

TEST_F(Fleet, PruneTakesWhatNobodyCanUse) {
  Environment stranger = node("stranger");
  stranger["KILN_REMOTE_SIGN"] = path("other.key");
  kiln(compile(3), node("a"));
  kiln(compile(4), stranger);
  kiln(compile(5), node("a"));
  for (const std::string& name : names("kiln:1:*:e:*"))  // evicts an entry; its row stays
    if (name.find(kiln(compile(5), node("a")).json()["key"].get<std::string>().substr(0, 32)) != name.npos)
      ask({"DEL", name});
  ask({"SET", "kiln:0:x", "of an older version"});
  ask({"SET", "somebody", "else's"});
  const auto dry = kiln({"remote", "prune", "--dry-run", "--json"}, node("a")).json();
  EXPECT_EQ(dry["unusable"], 1);
  EXPECT_EQ(dry["rows"], 2);
  EXPECT_EQ(dry["others"], 1);
  EXPECT_EQ(dry["removed"], 0);
  EXPECT_EQ(kiln({"remote", "prune", "--json"}, node("a")).json()["removed"], 4);
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(names("somebody").size(), 1u);
  EXPECT_EQ(kiln({"remote", "prune", "--all", "--json"}, node("a")).json()["kept"], 0);
  EXPECT_TRUE(names("kiln:*").empty());
}

TEST_F(Fleet, PrewarmFillsTheTierAndCheckCountsWhatItCovers) {
  Environment job = node("job");
  job.erase("KILN_REMOTE_MODE");
  write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2, 3]\n");
  const Arguments check = {"prewarm", path("plan.toml"), "--check", "--remote", "--json"};
  EXPECT_EQ(kiln(check, reader("b")).status, 3);
  const auto made = kiln({"prewarm", path("plan.toml"), "--remote", "--json"}, job).json();
  EXPECT_EQ(made["compiled"], 3);
  EXPECT_EQ(made["remote"]["pushed"], 3);
  const Finished covered = kiln(check, reader("b"));
  EXPECT_EQ(covered.status, 0) << covered.out << covered.err;
  EXPECT_EQ(covered.json()["covered"], 3);
  ask({"DEL", names("kiln:1:*:e:*").front()});
  EXPECT_EQ(kiln(check, reader("b")).json()["covered"], 2);
  EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--remote", "--json"}, job).json()["remote"]["pushed"], 1)
      << "from the disk";
  server_->stop();
  EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--remote"}, job).status, 3);
  EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--remote", "--strict"}, job).status, 5);
}

/// A server with docs/fleet/users.acl. All its users have the password pw.
class UnderAcl : public FleetCommand {
 protected:
  void SetUp() override {
    if (!testing::RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    FleetCommand::SetUp();
    if (IsSkipped()) return;
    std::string text, line;
    std::istringstream in(
        base::read_file(std::string(places::kSourceDirectory) + "/docs/fleet/users.acl")->bytes);
    while (std::getline(in, line)) {
      if (const std::size_t on = line.find(" on "); on != line.npos) line.insert(on + 4, ">pw ");
      if (line.starts_with("user ")) text += line + '\n';
    }
    write("users.acl", text);
    server_.emplace(std::vector<std::string>{"--aclfile", path("users.acl")});
  }
  std::string as(const std::string& user) const {
    return server_->unix_url() + "?user=" + user + "&password=pw";
  }
  std::optional<testing::RedisServer> server_;
};

TEST_F(UnderAcl, EachUserCanDoItsWorkAndNoMore) {
  EXPECT_EQ(kiln(compile(3), FleetCommand::node("a", as("kiln-fleet"))).json()["outcome"], "compiled");
  EXPECT_EQ(kiln(compile(3), FleetCommand::node("b", as("kiln-fleet"))).json()["outcome"], "remote");
  EXPECT_EQ(counts(FleetCommand::node("a", as("kiln-fleet")))["remote_puts"]["stored"], 1);
  const Environment reads = FleetCommand::reader("c", as("kiln-locked"));
  EXPECT_EQ(kiln(compile(3), reads).json()["outcome"], "remote");
  EXPECT_EQ(kiln(compile(4), reads).json()["outcome"], "compiled");
  EXPECT_EQ(counts(reads)["remote"]["reported"], 1);
  // A reader that also has the signing key still cannot write.
  const Environment eager = FleetCommand::node("d", as("kiln-locked"));
  EXPECT_EQ(kiln(compile(5), eager).json()["outcome"], "compiled");
  EXPECT_EQ(counts(eager)["remote_puts"]["failed"], 1);
  EXPECT_EQ(kiln(compile(5), reads).json()["outcome"], "compiled");
  Environment job = FleetCommand::node("job", as("kiln-prewarm"));
  const Finished made = kiln({"prewarm", "--remote", "--missed", "--json"}, job);
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.json()["remote"]["present"].get<int>() + made.json()["remote"]["pushed"].get<int>(), 2);
  EXPECT_EQ(kiln(compile(4), FleetCommand::reader("e", as("kiln-locked"))).json()["outcome"], "remote");
  const Environment operates = FleetCommand::reader("f", as("kiln-operator"));
  EXPECT_EQ(kiln({"remote", "status", "--strict"}, operates).status, 0);
  EXPECT_EQ(kiln({"remote", "prune", "--json"}, operates).json()["removed"], 0);
  EXPECT_EQ(kiln({"remote", "pull", "--all", "--json"}, operates).json()["stored"], 3);
  EXPECT_EQ(kiln({"remote", "prune", "--all"}, reads).status, 3) << "a reader may not search";
}

TEST_F(Fleet, DoctorAndPrometheusShowTheTierWithoutPasswords) {
  Environment a = node("a");
  kiln(compile(3), a);
  const auto findings = kiln({"doctor", "--json"}, a).json();
  bool found = false;
  for (const auto& finding : findings["findings"])
    found |= finding["name"] == "remote" && finding["status"] == "ok";
  EXPECT_TRUE(found) << findings.dump(2);
  EXPECT_NE(kiln({"stats", "--prometheus"}, a).out.find("kiln_remote_puts_total{result=\"stored\"} 1"),
            std::string::npos);
  a["KILN_REMOTE"] = "redis://user:hunter2@127.0.0.1:1";
  for (const Arguments& arguments : {Arguments{"doctor", "-v"}, Arguments{"doctor", "--json"},
                                     Arguments{"remote", "status"}, Arguments{"remote", "status", "--json"},
                                     Arguments{"compile", "scale", "N=9", "--log-level", "trace"}}) {
    const Finished done = kiln(arguments, a);
    EXPECT_EQ((done.out + done.err).find("hunter2"), std::string::npos) << arguments[0];
  }
}

TEST_F(Fleet, ASecretWhereItsFileIsWantedIsNotRepeated) {
  const std::string file = base::read_proc(path("fleet.key"));
  std::string key = file.substr(file.find('\n') + 1);
  key.resize(key.find('\n'));
  ASSERT_GT(key.size(), 100u);
  Environment a = node("a");
  a["KILN_REMOTE_SIGN"] = key, a["KILN_REMOTE_SIGN_PASSWORD"] = "hunter2";
  for (const Arguments& arguments : {Arguments{"doctor", "-v"}, Arguments{"doctor", "--json"},
                                     Arguments{"compile", "scale", "N=9", "--log-level", "trace"}}) {
    const Finished done = kiln(arguments, a);
    EXPECT_EQ((done.out + done.err).find(key.substr(0, 20)), std::string::npos) << done.out << done.err;
    EXPECT_EQ((done.out + done.err).find("hunter2"), std::string::npos) << done.out << done.err;
  }
  EXPECT_NE(kiln(compile(10), a).err.find("KILN_REMOTE_SIGN"), std::string::npos);
  for (const std::string& text : {key, file})  // also in place of a public key
    for (const Arguments& arguments :
         {Arguments{"doctor", "-v"}, Arguments{"doctor", "--json"}, compile(11)}) {
      Environment b = reader("b");
      b["KILN_REMOTE_KEY"] = text;
      const Finished done = kiln(arguments, b);
      EXPECT_EQ((done.out + done.err).find(key.substr(0, 20)), std::string::npos) << done.out << done.err;
    }
}

}  // namespace
}  // namespace kiln::test
