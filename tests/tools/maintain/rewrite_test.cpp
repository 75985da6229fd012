// kiln gc and kiln clear.
#include "tools/store_command.hpp"
#include "tools/terminal.hpp"

namespace kiln::test {
namespace {

using cache::test::key_of;
using cache::test::record_of;
using cache::test::same;
using Rewrite = StoreCommand;

TEST_F(Rewrite, NothingThereIsSaidAndNotMade) {
  for (const Arguments& arguments : {Arguments{"gc"}, {"clear"}, {"clear", "--yes"}}) {
    const Finished r = kiln(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("Nothing to do"), std::string::npos) << r.out;
    EXPECT_FALSE(exists(cache()));
  }
  const auto json = kiln({"gc", "--json"}).json();
  EXPECT_EQ(json["schema"], "kiln.gc/1");
  EXPECT_EQ(json["there"], false);
  EXPECT_EQ(kiln({"clear", "--json"}).json()["schema"], "kiln.clear/1");
}

TEST_F(Rewrite, GcKeepsTheMostRecentlyUsed) {
  fill(50);
  const std::uint64_t before = contents().size();
  {
    const auto store = open();  // uses 0 to 4 again
    for (std::uint32_t number = 0; number < 5; ++number) {
      cache::Record other = record_of(number, 9001);
      other.key_text = "another";
      ASSERT_EQ(store->put(other).put, cache::Put::stored);
    }
  }
  const Finished r = kiln({"gc", "--max-size", "200K", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  const auto json = r.json();
  EXPECT_EQ(json["there"], true);
  EXPECT_EQ(json["max_bytes"], 200 << 10);
  EXPECT_EQ(json["kept"].get<int>() + json["dropped"].get<int>(), 50);
  EXPECT_GT(json["dropped"], 10);
  EXPECT_EQ(json["damaged"], 0);
  EXPECT_GE(json["bytes_before"], before);
  EXPECT_EQ(json["bytes_after"], contents().size());
  const auto stats = kiln({"stats", "--json"}).json();
  EXPECT_EQ(stats["entries"], json["kept"]);
  const auto store = open();
  for (std::uint32_t number = 0; number < 5; ++number)
    EXPECT_TRUE(store->peek(key_of(number), cache::test::soon())) << number;
  EXPECT_NE(kiln({"gc"}).out.find("Kept " + std::to_string(json["kept"].get<int>()) + " entries"),
            std::string::npos);
}

TEST_F(Rewrite, GcKeepsNoMoreThanTheLimit) {
  fill(50);
  ASSERT_EQ(kiln({"gc", "--max-size", "200K"}).status, 0);
  EXPECT_LE(kiln({"stats", "--json"}).json()["live_bytes"], 200 << 10);
}

TEST_F(Rewrite, TheDefaultIsNineTenthsOfTheCap) {
  fill(1);
  EXPECT_EQ(kiln({"gc", "--json"}, {{"KILN_CACHE_MAX_SIZE", "100M"}}).json()["max_bytes"], 90 << 20);
  EXPECT_EQ(kiln({"gc", "--max-size", "1.5 MiB", "--json"}).json()["max_bytes"], 3 << 19);
}

TEST_F(Rewrite, ASizeThatIsNoneIsUsage) {
  fill(1);
  for (const char* size : {"much", "0", "-1", "5Q"})
    EXPECT_EQ(kiln({"gc", "--max-size", size}).status, 2) << size;
}

TEST_F(Rewrite, ClearAsksOnATerminal) {
  fill(3);
  const TerminalRun no = run_on_terminal(100, {"clear"}, environment(), "n\n");
  EXPECT_EQ(no.status, 1) << no.screen;
  EXPECT_NE(no.screen.find("Remove 3 entries"), std::string::npos) << no.screen;
  EXPECT_EQ(kiln({"stats", "--json"}).json()["entries"], 3);
  const TerminalRun yes = run_on_terminal(100, {"clear"}, environment(), "y\n");
  EXPECT_EQ(yes.status, 0) << yes.screen;
  EXPECT_EQ(kiln({"stats", "--json"}).json()["entries"], 0);
}

TEST_F(Rewrite, ClearWithoutATerminalWantsYes) {
  fill(3);
  const Finished refused = kiln({"clear"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("--yes"), std::string::npos) << refused.err;
  EXPECT_EQ(kiln({"stats", "--json"}).json()["entries"], 3);
  const Finished r = kiln({"clear", "--yes", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["dropped"], 3);
  EXPECT_EQ(r.json()["kept"], 0);
  EXPECT_EQ(kiln({"stats", "--json"}).json()["entries"], 0);
}

TEST_F(Rewrite, DamagedFilesAreReplaced) {
  for (const Arguments& arguments : {Arguments{"gc"}, {"clear", "--yes"}}) {
    fill(3);
    overwrite(std::string(50'000, 'g'));
    const Finished r = kiln(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(kiln({"verify", "--json"}).json()["entries"], 0);
  }
}

TEST_F(Rewrite, AHeldGateIsWaitedForAndItsHolderNamed) {
  fill(3);
  {
    const HeldGate held(data_file());
    for (const Arguments& arguments :
         {Arguments{"gc", "--wait", "0.3"}, {"clear", "--yes", "--wait", "0.3"}}) {
      const auto start = base::Clock::now();
      const Finished r = kiln(arguments);
      EXPECT_EQ(r.status, 1);
      EXPECT_GE(base::Clock::now() - start, std::chrono::milliseconds(300));
      EXPECT_NE(r.err.find("lslocks"), std::string::npos) << r.err;
      EXPECT_NE(r.err.find("held by pid " + std::to_string(::getpid())), std::string::npos) << r.err;
    }
  }
  // gc waits for the gate, and runs when the gate is free.
  auto held = std::make_unique<HeldGate>(data_file());
  auto process = start({"gc"});
  ::usleep(200'000);
  held.reset();
  EXPECT_EQ(process->wait().status, 0);
  EXPECT_EQ(kiln({"stats", "--json"}).json()["entries"], 3);
}

TEST_F(Rewrite, SomebodyElsesStoreIsLeftAlone) {
  fill(3);
  ASSERT_EQ(::chmod(data_file().c_str(), 0666), 0);
  EXPECT_EQ(kiln({"gc"}).status, 1);
  EXPECT_EQ(kiln({"clear", "--yes"}).status, 1);
  ASSERT_EQ(::chmod(data_file().c_str(), 0600), 0);
  EXPECT_EQ(kiln({"stats", "--json"}).json()["entries"], 3);
}

}  // namespace
}  // namespace kiln::test
