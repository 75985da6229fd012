// The key of a tuned choice, with a row for each change that must change it; and the choice's facts.
#include "compile/key/tuned_choice.hpp"

#include "base/wire.hpp"
#include "compile/fixture.hpp"
#include "compile/key/facts.hpp"

namespace kiln::testing {
namespace {

using compile::TunedChoice;
using Lists = std::vector<std::pair<std::string, std::vector<std::string>>>;

class ChoiceKey : public ::testing::Test {
 protected:
  ChoiceKey() {
    tree_.write("t/scale.toml", small_manifest("scale"));
    tree_.write("t/scale.cu", small_source("#include \"a.h\"\n#include <kit.h>\n"));
    tree_.write("t/a.h", "// a\n");
    tree_.write("toolkit/kit.h", "// kit\n");
    ask_.toolkit = fake_toolkit();
    ask_.toolkit.include_dirs = {tree_.at("toolkit")};
  }
  compile::MadeChoiceKey key(const Lists& lists = {{"N", {"1", "7"}}},
                             const std::string& device = "NVIDIA H200") {
    return compile::make_choice_key(make_unit(tree_.at("t"), ask_).made, lists, device);
  }
  Tree tree_;
  Ask ask_;
};

TEST_F(ChoiceKey, FollowsFromItsTextAndIsNoImages) {
  const auto made = key();
  EXPECT_EQ(compile::choice_key_of_text(made.text), made.key);
  EXPECT_TRUE(compile::is_choice_text(made.text));
  EXPECT_TRUE(compile::is_choice_of_this_version(made.text));
  EXPECT_FALSE(compile::is_choice_text(make_unit(tree_.at("t"), ask_).made.text));
  EXPECT_EQ(made.text, key().text);
}

TEST_F(ChoiceKey, DiffersByWhateverItWasMadeOf) {
  const auto before = key();
  const auto changed = [&](const char* what, const compile::MadeChoiceKey& after) {
    EXPECT_NE(after.key.specialisation, before.key.specialisation) << what;
  };
  changed("a candidate", key({{"N", {"1", "8"}}}));
  changed("fewer candidates", key({{"N", {"1"}}}));
  changed("another parameter is free", key({{"T", {"f32"}}, {"N", {"1", "7"}}}));
  ask_.values = {Dtype::f32, 8};
  changed("a value", key());
  ask_.values = {Dtype::f32, 7};
  ask_.arch = "sm_100a";
  changed("the arch", key());
  ask_.arch = "sm_90a";
  EXPECT_EQ(key().key, before.key);
  tree_.write("t/a.h", "// b\n");
  changed("a header", key());
  tree_.write("t/a.h", "// a\n");
  tree_.write("t/scale.cu", small_source("#include \"a.h\"\n#include <kit.h>\n// more\n"));
  changed("the source", key());
}

TEST_F(ChoiceKey, OfAnotherDeviceSharesTheFirstHalf) {
  const auto one = key(), other = key({{"N", {"1", "7"}}}, "NVIDIA H100");
  EXPECT_EQ(one.key.specialisation, other.key.specialisation);
  EXPECT_NE(one.key.toolchain, other.key.toolchain);
}

TEST_F(ChoiceKey, DoesNotDependOnTheToolchain) {
  const auto before = key();
  ask_.toolkit.compiler_identity = "another";
  tree_.write("toolkit/kit.h", "// another\n");
  EXPECT_EQ(key().key, before.key);
}

TEST_F(ChoiceKey, NoDeviceNameImitatesAnotherField) {
  const auto one = key({{"N", {"1"}}}, "X"), other = key({}, "X\ntune 1:N 1:1");
  EXPECT_NE(one.key, other.key);
  EXPECT_EQ(compile::choice_key_of_text(other.text), other.key);
}

TunedChoice some_choice() {
  TunedChoice out;
  out.template_name = "f", out.arch = "sm_90a", out.device = "NVIDIA H200";
  out.fixed = {{"N", "3"}}, out.chosen = {{"A", "1"}, {"B", "8"}};
  out.timings = {{"rows=64", 1.5, 2.5}, {"rows=8192", 30, 31}};
  out.candidates = 6, out.kiln_version = "0.1.0", out.created_s = 1234567;
  return out;
}

TEST(TunedChoiceFacts, ComeBackAsTheyWere) {
  const TunedChoice before = some_choice(), after = compile::decode_choice(compile::encode(before));
  EXPECT_EQ(compile::encode(after), compile::encode(before));
  EXPECT_EQ(after.chosen, before.chosen);
  EXPECT_EQ(after.timings[1].default_us, 31);
  EXPECT_EQ(after.label(), "f N=3 sm_90a on NVIDIA H200");
}

TEST(TunedChoiceFacts, AreNoneOfAnImageAndTheOtherWayRound) {
  const std::string choice = compile::encode(some_choice()), image = compile::encode(compile::Facts());
  EXPECT_TRUE(compile::is_choice(choice));
  EXPECT_FALSE(compile::is_choice(image));
  EXPECT_FALSE(compile::is_choice(""));
  EXPECT_THROW(compile::decode_facts(choice), base::Malformed);
  EXPECT_THROW(compile::decode_choice(image), base::Malformed);
}

TEST(TunedChoiceFacts, CutShortAreMalformed) {
  const std::string whole = compile::encode(some_choice());
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(compile::decode_choice(whole.substr(0, size)), base::Malformed) << size;
}

}  // namespace
}  // namespace kiln::testing
