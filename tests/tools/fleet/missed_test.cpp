// The rows that the prewarm job takes from the stream of missed rows,
// and the entries that it sends to the tier.
#include <csignal>
#include <regex>

#include "cache/fleet/redis/client.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

class Missed : public Fleet {
 protected:
  /// The environment of a job. A job writes because its command says so, not because of the mode.
  Environment job() const {
    Environment out = node("job");
    out.erase("KILN_REMOTE_MODE");
    return out;
  }
  static std::string row(const std::string& name, const std::string& n) {
    return "[[prewarm]]\ntemplate = \"" + name + "\"\narch = \"sm_90a\"\nN = " + n + "\n# end\n";
  }
  void report(const std::string& text) { ask({"XADD", "kiln:1:missing", "*", "row", text}); }
  /// The texts that are still in the stream.
  std::vector<std::string> reported() {
    std::vector<std::string> out;
    for (const fleet::Reply& entry : ask({"XRANGE", "kiln:1:missing", "-", "+"}).elements)
      out.push_back(entry.elements[1].elements[1].text);
    return out;
  }
  std::string plan(const std::string& values) const {
    write("plan.toml", "[[prewarm]]\ntemplate = \"scale\"\narch = \"sm_90a\"\nN = " + values + "\n");
    return path("plan.toml");
  }
};

using Texts = std::vector<std::string>;

TEST_F(Missed, OnlyWhatWasMadeAndWhatIsNoRowIsForgotten) {
  report(row("scale", "3"));
  report(row("scale", "3"));  // from another node
  report(row("picky", "2"));  // fails
  report(row("elsewhere", "4"));
  report("\x1b[2J");
  report(std::string(5000, 'x'));
  report(row("scale", "[5, 6]"));
  report(row("scale", "7"));
  const Finished made = kiln({"prewarm", "--remote", "--missed", "--keep-going", "--json"}, job());
  EXPECT_EQ(made.status, 3) << made.err;
  EXPECT_EQ(made.json()["remote"]["pushed"], 2);
  EXPECT_EQ(reported(), (Texts{row("picky", "2"), row("elsewhere", "4")}));
  // The row that failed stays, so a later job makes it when its template is repaired.
  write("templates/picky.cu", "template <int N> __global__ void picky() {}\n");
  EXPECT_EQ(kiln({"prewarm", "--remote", "--missed", "--json"}, job()).status, 0);
  EXPECT_EQ(reported(), Texts{row("elsewhere", "4")});
}

TEST_F(Missed, NothingIsForgottenWhenTheServerTakesNothing) {
  report(row("scale", "3"));
  ask({"CONFIG", "SET", "maxmemory", "1"});
  ask({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  EXPECT_EQ(kiln({"prewarm", "--remote", "--missed"}, job()).status, 3);
  ask({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_EQ(reported().size(), 1u);
  EXPECT_EQ(kiln({"prewarm", "--remote", "--missed"}, job()).status, 0);
  EXPECT_TRUE(reported().empty());
}

TEST_F(Missed, AnInterruptForgetsNothingAndSaysWhatIsLeft) {
  for (const int n : {3, 4, 5, 6}) report(row("scale", std::to_string(n)));
  Environment held = job();
  held["KILN_WORKER"] = held_worker("go");
  const auto run = start({"prewarm", "--remote", "--missed", "-j1"}, held);
  ASSERT_TRUE(comes_true([&] {
    return kiln({"top", "--json"}, held).out.find("\"state\": \"compiling\"") != std::string::npos;
  }));
  run->send(SIGINT);
  release("go");
  const Finished done = run->wait();
  EXPECT_EQ(done.status, 130) << done.err;
  EXPECT_EQ(reported().size(), 4u);
  EXPECT_EQ(entries(), 0u);
  EXPECT_NE(done.out.find("1 entry that is here may not be in the tier yet: run the same command"),
            std::string::npos)
      << done.out;
  const Finished again = kiln({"prewarm", "--remote", "--missed", "--json"}, job());
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.json()["remote"]["pushed"], 4);
  EXPECT_TRUE(reported().empty());
}

TEST_F(Missed, LargeRowsKeepNoJobFromItsPlanNorFromTheRowsBehindThem) {
  for (int i = 0; i < 70; ++i) report(std::string(1'000'000, 'x'));
  report(row("scale", "3"));
  // On a busy machine the server may start a reply later than kiln waits. Then the command runs again.
  Finished made;
  int pushed = 0, left_out = 0;
  const auto patience = base::Deadline::after(std::chrono::seconds(120));
  do {
    made = kiln({"prewarm", plan("4"), "--remote", "--missed", "--json"}, job());
    pushed += made.json()["remote"]["pushed"].get<int>();
    std::smatch said;
    if (std::regex_search(
            made.err, said,
            std::regex(
                "(\\d+) reported rows? (?:was|were) left out, the first because: the row is too long")))
      left_out += std::stoi(said[1]);
  } while (made.err.find("timeout: not answered within") != std::string::npos && !patience.passed());
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(pushed, 2);
  EXPECT_EQ(left_out, 70);
  EXPECT_TRUE(reported().empty());
}

TEST_F(Missed, ARowThatIsTooLargeToReadIsSaidAndThePlanIsMade) {
  report(row("scale", "3"));
  const fleet::Command huge{
      {"EVAL", "return redis.call('XADD', KEYS[1], '*', 'row', string.rep('x', 70000000))", "1",
       "kiln:1:missing"},
      {},
      1024};
  fleet::Client patient(
      {.url = fleet::Url::parse(server_->unix_url()), .timeouts = {.read = std::chrono::seconds(30)}});
  ASSERT_TRUE(patient.call(huge, base::Deadline::never()));
  // On a busy machine the server may start a reply later than kiln waits. Then the command runs again.
  Finished made;
  int pushed = 0;
  const auto patience = base::Deadline::after(std::chrono::seconds(120));
  do {
    made = kiln({"prewarm", plan("4"), "--remote", "--missed", "--json"}, job());
    pushed += made.json()["remote"]["pushed"].get<int>();
  } while (made.err.find("timeout: not answered within") != std::string::npos && !patience.passed());
  EXPECT_EQ(made.status, 3) << made.err;
  EXPECT_EQ(pushed, 2) << "what was read is made";
  EXPECT_NE(made.err.find("'XTRIM kiln:1:missing MAXLEN 0'"), std::string::npos) << made.err;
  EXPECT_EQ(ask({"XLEN", "kiln:1:missing"}).integer, 1);
}

TEST_F(Missed, MoreRowsThanAPageHoldsAreAllRead) {
  for (int i = 0; i < 200; ++i) report(row("scale", std::to_string(1 + i % 2)));
  EXPECT_EQ(kiln({"prewarm", "--remote", "--missed", "--json"}, job()).json()["remote"]["pushed"], 2);
  EXPECT_TRUE(reported().empty());
}

TEST_F(Missed, ARotatedKeySignsAnewWhatOnlyTheOldOneHadSigned) {
  const Arguments prewarm = {"prewarm", plan("[3, 4]"), "--remote", "--json"};
  ASSERT_EQ(kiln(prewarm, job()).json()["remote"]["pushed"], 2);
  Environment writer = job(), fresh = reader("fresh");
  writer["KILN_REMOTE_KEY"] = path("fleet.pub") + ',' + path("other.pub");
  writer["KILN_REMOTE_SIGN"] = path("other.key");
  fresh["KILN_REMOTE_KEY"] = path("other.pub");
  EXPECT_EQ(kiln(prewarm, writer).json()["remote"]["pushed"], 2);
  EXPECT_EQ(kiln(prewarm, writer).json()["remote"]["present"], 2);
  for (const char* n : {"N=3", "N=4"})
    EXPECT_EQ(kiln({"compile", "scale", n, "--arch", "sm_90a", "--json"}, fresh).json()["outcome"], "remote");
  // With an emptied cache, entries and rows that the tier serves are still signed again.
  Environment back = writer;
  back["KILN_CACHE_DIR"] = path("empty"), back["KILN_REMOTE_SIGN"] = path("fleet.key");
  EXPECT_EQ(kiln(prewarm, back).json()["remote"]["pushed"], 2);
  EXPECT_EQ(kiln({"remote", "prune", "--json"}, reader("a")).json()["removed"], 0);
  EXPECT_EQ(kiln({"remote", "push", "--all", "--json"}, writer).json()["pushed"], 2);
}

TEST_F(Missed, AValueOfAnotherTypeIsReplacedAndPruned) {
  const Arguments push = {"remote", "push", "--all", "--json"};
  kiln(compile(3), node("a"));
  const std::string entry = names("kiln:1:*:e:*").front(), rows = names("kiln:1:*:t").front();
  const auto spoil = [&](const std::string& name) {
    ask({"DEL", name});
    ask({"SADD", name, "x"});
  };
  spoil(entry);
  EXPECT_EQ(kiln(push, node("a")).json()["pushed"], 1);
  EXPECT_EQ(kiln(compile(3), reader("b")).json()["outcome"], "remote");
  spoil(entry);
  spoil(rows);
  const Finished pruned = kiln({"remote", "prune", "--json"}, reader("a"));
  EXPECT_EQ(pruned.status, 0) << pruned.err;
  EXPECT_EQ(pruned.json()["unusable"], 2);
  EXPECT_TRUE(names("kiln:1:*:*").empty());
  EXPECT_EQ(kiln(push, node("a")).json()["pushed"], 1);
}

}  // namespace
}  // namespace kiln::test
