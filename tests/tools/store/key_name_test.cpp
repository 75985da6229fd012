// Names of keys: a shown name means exactly one key, even when keys have many digits in common.
#include "tools/kiln/store/key/name.hpp"

#include <gtest/gtest.h>

#include <random>

#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

Key key(const std::string& specialisation, const std::string& toolchain) {
  return *Key::from_hex(specialisation + std::string(32 - specialisation.size(), '0') + toolchain +
                        std::string(32 - toolchain.size(), '0'));
}

std::string shown(const std::vector<Key>& all, std::size_t at, std::size_t digits = 12) {
  return KeyNames(all, digits).of(all[at]);
}

TEST(KeyNames, AreAsShortAsTheListAllows) {
  const std::string same = "7ca0631d9df0";
  EXPECT_EQ(shown({key(same, "b743")}, 0), same);
  EXPECT_EQ(shown({key(same, "b743")}, 0, 8), "7ca0631d");
  EXPECT_EQ(shown({key(same, "b743"), key("8", "e")}, 0), same);
  EXPECT_EQ(shown({key(same, "b743"), key(same, "e10f")}, 0), same + "-b743");
  EXPECT_EQ(shown({key(same, "b7431"), key(same, "b7432"), key(same, "e")}, 0), same + "-b7431");
  EXPECT_EQ(shown({key(same, "b7431"), key(same, "b7432"), key(same, "e")}, 2), same + "-e000");
  EXPECT_EQ(shown({key(same + "1", "b"), key(same + "2", "b")}, 0), same + "1");
  EXPECT_EQ(shown({key(same, "b"), key(same, "b")}, 0), same) << "the same key twice is one";
}

TEST(KeyNames, NameOneKeyAndNoOtherWhateverKeysHaveInCommon) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<Key> all;
    for (int i = 0; i < 40; ++i) {  // few values, so that keys share many digits
      Key made;
      for (auto* half : {&made.specialisation, &made.toolchain})
        half->bytes[random() % 16] = static_cast<std::uint8_t>(random() % 3);
      all.push_back(made);
    }
    const KeyNames names(all, 1 + random() % 12);
    for (const Key& one : all) {
      const KeyName name(names.of(one));
      for (const Key& other : all) EXPECT_EQ(name.names(other), other == one) << names.of(one);
      EXPECT_TRUE(!(one < name.first()) && !(name.last() < one)) << names.of(one);
    }
  }
}

TEST(KeyName, AcceptsDigitsOfTheWholeAndOfBothHalves) {
  const Key one = key("7ca0", "b743"), other = key("7ca0", "e10f");
  for (const std::string& text : {one.hex(), one.hex().substr(0, 36), one.specialisation.hex() + "-b7",
                                  std::string("7-b7"), "7ca0-" + one.toolchain.hex()}) {
    EXPECT_TRUE(KeyName(text).names(one)) << text;
    EXPECT_FALSE(KeyName(text).names(other)) << text;
  }
  EXPECT_TRUE(KeyName("7CA0-B7").names(one)) << "as another tool may print it";
  EXPECT_TRUE(KeyName("7CA0", "B7").names(one));
  EXPECT_FALSE(KeyName("7CA0", "B7").names(other));
  EXPECT_TRUE(KeyName("7ca0").names(one) && KeyName("7ca0-").names(other) && KeyName().names(other));
  EXPECT_TRUE(KeyName("7ca0", "e1").names(other));
  EXPECT_FALSE(KeyName("7ca0", "e1").names(one));
  EXPECT_TRUE(KeyName("7ca0-e", "e10f").names(other)) << "the longer of two that agree";
}

TEST(KeyName, RefusesWhatNoKeyCanBe) {
  const std::string half(32, '0');
  for (const std::string& text : {std::string("xyz"), std::string("7CG0"), half + half + "0", half + "0-b",
                                  "7-" + half + "0", std::string("7-b-c")})
    EXPECT_THROW(KeyName{text}, Error) << text;
  EXPECT_THROW(KeyName("7", "xyz"), Error);
  EXPECT_THROW(check_toolchain("B7"), Error) << "who compares the digits as they are would find nothing";
  EXPECT_THROW(KeyName("7-b743", "e1"), Error);
}

}  // namespace
}  // namespace kiln::cli
