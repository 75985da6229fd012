// The profiles that ship, and their patterns.
#include "tools/kiln/caches/profile/profile.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <set>

#include "base/file.hpp"
#include "support/places.hpp"
#include "tools/kiln/caches/profile/facts.hpp"
#include "tools/kiln/caches/profile/glob.hpp"
#include "tools/kiln/caches/tree/listing.hpp"
#include "tools/kiln/caches/tree/time.hpp"

using namespace kiln::cli;

TEST(CacheProfiles, TheShippedOnesAreRead) {
  const std::string directory = std::string(kiln::places::kSourceDirectory) + "/tools/kiln/caches/profiles";
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string file = entry.path().string(), name = entry.path().stem().string();
    const Profile profile = parse_profile(kiln::base::read_file(file)->bytes, name, file);
    EXPECT_FALSE(profile.summary.empty()) << name;
    EXPECT_FALSE(profile.facts.empty()) << name;
    names.insert(name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"cuda", "cute-dsl", "deepgemm", "flashinfer", "hf-kernels",
                                          "inductor-dir", "tilelang", "triton-dir", "tvm-ffi", "vllm"}));
}

TEST(CacheProfiles, APatternFitsWholePaths) {
  EXPECT_TRUE(fits("**", "a/b"));
  EXPECT_TRUE(fits("**/*.lock", "x.lock"));
  EXPECT_TRUE(fits("**/*.lock", "a/b/x.lock"));
  EXPECT_FALSE(fits("**/*.lock", "a/x.lock.so"));
  EXPECT_TRUE(fits("tmp/**", "tmp/a/b"));
  EXPECT_FALSE(fits("tmp/**", "a/tmp/b"));
  EXPECT_TRUE(fits("**/tmp.pid_*", "a/tmp.pid_1_2"));
  EXPECT_FALSE(fits("*.so", "a/b.so"));
  EXPECT_TRUE(fits("?/b", "a/b"));
  EXPECT_FALSE(fits("a?b", "a/b"));
  EXPECT_FALSE(fits("a", "ab"));
  EXPECT_TRUE(fits("**/lock", "lock"));
  EXPECT_FALSE(fits("**/lock", "block"));
}

TEST(CacheProfiles, APatternOfManyStarsIsAnswered) {
  std::string stars, names;
  for (int i = 0; i < 30; ++i) stars += "*a", names += "**/*a";
  EXPECT_FALSE(fits(stars + 'b', std::string(200, 'a')));
  EXPECT_FALSE(fits(names + 'b', std::string(200, 'a')));
  EXPECT_TRUE(fits(stars, std::string(200, 'a')));
  EXPECT_TRUE(fits("*a**/b", "aab"));
  EXPECT_TRUE(fits("*/x*/y", "ab/xc/y"));
  EXPECT_FALSE(fits("*/x*/y", "ab/xc/d/y"));
  EXPECT_TRUE(fits("**/x*/y", "ab/x/xc/y"));
  EXPECT_TRUE(fits("", ""));
  EXPECT_FALSE(fits("", "a"));
  EXPECT_TRUE(fits("*", ""));
}

TEST(CacheProfiles, ATimeBefore1970HasAFractionThatIsNotNegative) {
  const timespec before = timespec_of(-1);
  EXPECT_EQ(before.tv_sec, -1);
  EXPECT_EQ(before.tv_nsec, 999'999'999);
  EXPECT_EQ(ns_of(before), -1);
  EXPECT_EQ(ns_of(timespec_of(1'700'000'000'000'000'123)), 1'700'000'000'000'000'123);
  EXPECT_EQ(ns_of({1'000'000'000'000, 5}), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ns_of({-1'000'000'000'000, 5}), std::numeric_limits<std::int64_t>::min());
}

TEST(CacheProfiles, FactsAreReadBack) {
  const Facts facts = {{"gpu", "sm_90a"}, {"root", "/a b/c"}};
  EXPECT_EQ(facts_in(text_of(facts)), facts);
  EXPECT_TRUE(facts_in("triton 3.6").empty());
  const auto other = differences(facts, {{"gpu", "sm_90a"}, {"driver", "580"}});
  ASSERT_EQ(other.size(), 2u);
  EXPECT_EQ(other[0].fact, "driver");
  EXPECT_EQ(other[0].recorded, "");
  EXPECT_EQ(other[1].now, "");
}

TEST(CacheProfiles, ASymlinkStaysInsideOnlyWithItsUpwardStepsFirst) {
  EXPECT_TRUE(stays_inside("s", "d/f"));
  EXPECT_TRUE(stays_inside("d/e/s", "../../f"));
  EXPECT_TRUE(stays_inside("d/s", ".."));
  EXPECT_FALSE(stays_inside("s", "d/../f")) << "d may be a symlink itself";
  EXPECT_FALSE(stays_inside("d/s", "../../f"));
  EXPECT_FALSE(stays_inside("s", "/f"));
}
