#include "cache/fleet/redis/lease_commands.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cache/fleet/redis/keys.hpp"
#include "support/places.hpp"
#include "tests/fleet/trust_fixture.hpp"

using namespace kiln;
using namespace kiln::fleet;
using Kind = LeaseRequest::Kind;
using Words = std::vector<std::string>;

namespace {

using kiln::testing::numbered_key;

LeaseRound round_of(std::vector<LeaseRequest> requests, const LeaseRound::Locate& place,
                    std::size_t most = 64) {
  return LeaseRound(std::move(requests), LeasePolicy(), place, most, 1 << 20);
}
std::uint32_t one_place(const std::string&) { return 0; }
Reply bulk(const char* text) { return {Reply::Kind::bulk, 0, text, {}}; }
Reply array(std::vector<Reply> elements) { return {Reply::Kind::array, 0, {}, std::move(elements)}; }
Answer good(Reply reply) { return {Fault::none, {}, std::move(reply)}; }

}  // namespace

TEST(LeaseCommands, NamesOfOneSpecialisationShareAHashTag) {
  const Key key = *Key::from_hex("00112233445566778899aabbccddeeffffeeddccbbaa99887766554433221100");
  EXPECT_EQ(entry_key(key), "kiln:1:{00112233445566778899aabbccddeeff}:e:ffeeddccbbaa99887766554433221100");
  EXPECT_EQ(lease_key(key), "kiln:1:{00112233445566778899aabbccddeeff}:l:ffeeddccbbaa99887766554433221100");
  EXPECT_EQ(rows_key(key.specialisation), "kiln:1:{00112233445566778899aabbccddeeff}:t");
}

TEST(LeaseCommands, LooksOfOnePlaceAreOneMget) {
  std::vector<LeaseRequest> looks;
  for (std::uint8_t i = 0; i < 10; ++i) looks.push_back({Kind::look, numbered_key(i), {}});
  const LeaseRound one = round_of(looks, one_place);
  ASSERT_EQ(one.commands().size(), 1u);
  EXPECT_EQ(one.commands()[0].words.size(), 21u);
  EXPECT_EQ(one.commands()[0].words[1], entry_key(numbered_key(0)));
  EXPECT_EQ(one.commands()[0].words[2], lease_key(numbered_key(0)));
  const LeaseRound two = round_of(looks, [](const std::string& tag) { return tag[1] % 2 == 0 ? 1u : 2u; });
  EXPECT_EQ(two.commands().size(), 2u);
  EXPECT_EQ(round_of(looks, one_place, 3).commands().size(), 4u);
  EXPECT_EQ(round_of(looks, one_place, 1).commands().size(), 10u);
}

TEST(LeaseCommands, EachRequestGetsItsOwnPartOfTheAnswers) {
  const LeaseRound round = round_of({{Kind::look, numbered_key(1), {}},
                                     {Kind::acquire, numbered_key(2), "t2"},
                                     {Kind::look, numbered_key(3), {}},
                                     {Kind::renew, numbered_key(4), "t4"},
                                     {Kind::release, numbered_key(5), "t5"},
                                     {Kind::acquire, numbered_key(6), "t6"}},
                                    one_place);
  const auto& commands = round.commands();
  ASSERT_EQ(commands.size(), 7u);
  EXPECT_EQ(commands[1].words, (Words{"SET", lease_key(numbered_key(2)), "t2", "NX", "PX", "10000"}));
  EXPECT_EQ(commands[2].words, (Words{"GET", entry_key(numbered_key(2))})) << "behind the SET";
  EXPECT_EQ(commands[3].words,
            (Words{"EVAL", std::string(kRenewScript), "1", lease_key(numbered_key(4)), "t4", "10000"}));
  EXPECT_EQ(commands[4].words,
            (Words{"EVAL", std::string(kReleaseScript), "1", lease_key(numbered_key(5)), "t5"}));
  const auto answers =
      round.read({good(array({bulk("e1"), {}, {}, bulk("h3")})), good({Reply::Kind::status, 0, "OK", {}}),
                  good(bulk("e2")), good({Reply::Kind::integer, 1, {}, {}}),
                  good({Reply::Kind::integer, 0, {}, {}}), good({}), good({})});
  EXPECT_EQ(answers[0].entry, "e1");
  EXPECT_EQ(answers[0].holder, "");
  EXPECT_TRUE(answers[1].granted);
  EXPECT_EQ(answers[1].entry, "e2");
  EXPECT_FALSE(answers[2].entry);
  EXPECT_EQ(answers[2].holder, "h3");
  EXPECT_TRUE(answers[3].granted);
  EXPECT_FALSE(answers[4].granted);
  EXPECT_FALSE(answers[5].granted);
  for (const auto& answer : answers) EXPECT_EQ(answer.state, LeaseAnswer::State::answered);
}

TEST(LeaseCommands, FaultsAndNonsenseAreNoAnswers) {
  using State = LeaseAnswer::State;
  const LeaseRound round =
      round_of({{Kind::look, numbered_key(1), {}}, {Kind::acquire, numbered_key(2), "t"}}, one_place);
  const auto state = [&](std::vector<Answer> answers) {
    const auto read = round.read(std::move(answers));
    return std::pair(read[0].state, read[1].state);
  };
  const Answer array_of_one = good(array({bulk("x")})), late{Fault::timeout, {}, {}},
               refused{Fault::refused, "NOPERM", {}}, fine = good(array({{}, {}})),
               ok = good({Reply::Kind::status, 0, "OK", {}});
  EXPECT_EQ(state({}), std::pair(State::unanswered, State::unanswered));
  EXPECT_EQ(state({array_of_one, ok, good({})}), std::pair(State::unanswered, State::answered));
  EXPECT_EQ(state({good(bulk("x")), refused, good({})}), std::pair(State::unanswered, State::refused));
  EXPECT_EQ(state({late, late, late}), std::pair(State::unanswered, State::unanswered));
  EXPECT_EQ(state({fine, ok, late}), std::pair(State::answered, State::unanswered))
      << "it may be ours: the next look tells";
}

TEST(LeaseCommands, TheAclNamesTheScriptsByTheirText) {
  std::ifstream in(std::string(places::kSourceDirectory) + "/docs/fleet/users.acl");
  std::stringstream text;
  text << in.rdbuf();
  for (const auto script : {kRenewScript, kReleaseScript}) {
    EXPECT_NE(text.str().find("+eval|" + std::string(script)), std::string::npos) << script;
    for (const char c : {' ', '\'', '"', '|', '\n'}) EXPECT_EQ(script.find(c), std::string_view::npos);
    EXPECT_NE(script.back(), ')') << "would end a selector";
  }
}
