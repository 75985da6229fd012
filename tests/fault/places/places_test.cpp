// Places as they are on real hosts and in containers. The kernel is served, the store is in a
// safe place, and one warning says what to do.
#include "fault/places/fixture.hpp"

namespace kiln::testing {
namespace {

TEST_F(PlacesTest, ADirectoryOfOursIsMade0700WithItsParents) {
  const Served first = serve(0, at(tree_.at("a/b")));
  EXPECT_EQ(first.outcome, "compiled");
  EXPECT_EQ(first.directory, tree_.at("a/b"));
  EXPECT_TRUE(first.warnings.empty()) << first.warnings[0];
  for (const char* name : {"a", "a/b", "a/b/v1"}) EXPECT_EQ(mode_of(tree_.at(name)), "0700");
  EXPECT_EQ(serve(0, at(tree_.at("a/b"))).outcome, "disk");
}

TEST_F(PlacesTest, AnEmptyDirGetsAPrivateDirectoryForEachUser) {
  KILN_NEEDS_ROOT();
  make(tree_.at("volume"), 0777, 0);  // like an emptyDir of Kubernetes
  for (const unsigned uid : {kUser, kStranger, 0u}) {
    for (const char* expected : {"compiled", "disk"}) {
      const Served got = serve(uid, at(tree_.at("volume")));
      EXPECT_EQ(got.outcome, expected) << uid;
      EXPECT_EQ(got.directory, tree_.at("volume") + name_of(uid));
      EXPECT_TRUE(got.warnings.empty()) << got.warnings[0];
    }
    EXPECT_EQ(mode_of(tree_.at("volume") + name_of(uid)), "0700");
  }
}

TEST_F(PlacesTest, AGroupWritableVolumeIsSharedToo) {
  KILN_NEEDS_ROOT();
  make(tree_.at("volume"), 02775, 0);  // like a volume with an fsGroup
  ASSERT_EQ(::chown(tree_.at("volume").c_str(), 0, kUser), 0);
  const Served got = serve(kUser, at(tree_.at("volume")));
  EXPECT_EQ(got.outcome, "compiled");
  EXPECT_EQ(got.directory, tree_.at("volume") + name_of(kUser));
}

TEST_F(PlacesTest, APrivateDirectoryThatSomebodyElseMadeIsRefused) {
  KILN_NEEDS_ROOT();
  const std::string volume = tree_.at("volume"), inside = volume + name_of(kUser);
  const std::function<void()> plants[] = {
      [&] { make(inside, 0755, kStranger); },
      [&] { make(inside, 0777, kUser); },
      [&] {
        make(tree_.at("trap"), 0777, kStranger);
        ASSERT_EQ(::symlink(tree_.at("trap").c_str(), inside.c_str()), 0);
        ASSERT_EQ(::lchown(inside.c_str(), kStranger, kStranger), 0);
      },
      [&] { ASSERT_EQ(::symlink(tree_.at("trap").c_str(), inside.c_str()), 0); },
      [&] { base::write_file(inside, "in the way"); },
  };
  for (const auto& plant : plants) {
    remove_with_shared_memory(volume);
    make(volume, 0777, 0);
    plant();
    const Served got = serve(kUser, at(volume));
    EXPECT_TRUE(got.outcome == "compiled" || got.outcome == "disk") << got.outcome;
    EXPECT_EQ(got.directory, tree_.at("tmp") + name_of(kUser));
    expect_one_warning(got, {inside, "caching in '" + got.directory, "KILN_CACHE_DIR"});
    EXPECT_FALSE(std::filesystem::exists(tree_.at("trap/v1")));
  }
}

TEST_F(PlacesTest, CapBelowTheSmallestIsSaidOnce) {
  Options o = at(tree_.at("cache"));
  o.cache_max_size = "1M";
  const Served got = serve(::geteuid(), o);
  EXPECT_EQ(got.outcome, "compiled");
  expect_one_warning(got, {"KILN_CACHE_MAX_SIZE is 1048576 bytes", "4194304 bytes (4M)"});
  o.cache_max_size = "4M";
  EXPECT_TRUE(serve(::geteuid(), o, {}, 8).warnings.empty());
}

TEST_F(PlacesTest, ADirectoryOfSomebodyElseIsAStepDown) {
  KILN_NEEDS_ROOT();
  make(tree_.at("theirs"), 0755, kStranger);
  const Served got = serve(kUser, at(tree_.at("theirs")));
  EXPECT_EQ(got.outcome, "compiled");
  EXPECT_EQ(got.directory, tree_.at("tmp") + name_of(kUser));
  expect_one_warning(got, {tree_.at("theirs"), "Permission denied", "KILN_CACHE_DIR"});
  EXPECT_EQ(serve(kUser, at(tree_.at("theirs"))).outcome, "disk") << "from the place stepped down to";
}

TEST_F(PlacesTest, AStoreOfSomebodyElseInOurDirectoryIsNotUsed) {
  KILN_NEEDS_ROOT();
  const Options o = at(tree_.at("cache"));
  ASSERT_EQ(serve(0, o).outcome, "compiled");
  ASSERT_EQ(::chown(tree_.at("cache").c_str(), kUser, kUser), 0);
  const Served got = serve(kUser, o);
  EXPECT_EQ(got.outcome, "compiled") << "root's v1 is 0700";
  EXPECT_EQ(got.directory, tree_.at("tmp") + name_of(kUser));
  ASSERT_EQ(::chmod(tree_.at("cache/v1").c_str(), 0777), 0);
  ASSERT_EQ(::chmod(tree_.at("cache/v1/data.mdb").c_str(), 0666), 0);
  EXPECT_EQ(serve(kUser, o, {}, 8).directory, tree_.at("tmp") + name_of(kUser));
}

TEST_F(PlacesTest, AReadOnlyDirectoryIsReadAndSteppedDownFrom) {
  KILN_NEEDS_ROOT();
  const Options o = at(tree_.at("baked"));
  ASSERT_EQ(serve(0, o).outcome, "compiled");
  for (const char* name : {"baked", "baked/v1"}) ::chmod(tree_.at(name).c_str(), 0755);
  ::chmod(tree_.at("baked/v1/data.mdb").c_str(), 0644);
  const Served hit = serve(kUser, o);
  EXPECT_EQ(hit.outcome, "layer");
  EXPECT_EQ(hit.directory, tree_.at("tmp") + name_of(kUser));
  expect_one_warning(hit, {"reading what '" + tree_.at("baked") + "' holds", "caching in", "KILN_CACHE_DIR"});
  EXPECT_EQ(serve(kUser, o, {}, 8).outcome, "compiled");
  EXPECT_EQ(serve(kUser, o, {}, 8).outcome, "disk");
  ::chmod(tree_.at("baked/v1/data.mdb").c_str(), 0664);
  EXPECT_EQ(serve(kUser, o).outcome, "compiled") << "no layer: others may write it";
}

TEST_F(PlacesTest, WithoutHomeOrWithOneThatIsNotThereItStillWorks) {
  const unsigned uid = ::geteuid() == 0 ? kUser : 0;  // a uid without a name
  const std::string expected = tree_.at("tmp") + name_of(uid ? uid : ::geteuid());
  tree_.write("file", "");
  const Variables cases[] = {{},
                             {{"HOME", "/nonexistent"}},
                             {{"HOME", ""}},
                             {{"HOME", "relative"}},
                             {{"HOME", tree_.at("file")}},
                             {{"XDG_CACHE_HOME", "relative/cache"}},
                             {{"XDG_CACHE_HOME", "/proc/nowhere"}}};
  for (const Variables& variables : cases) {
    remove_with_shared_memory(expected);
    const Served got = serve(uid, at(""), variables);
    EXPECT_EQ(got.outcome, "compiled");
    EXPECT_EQ(got.directory, expected);
    expect_one_warning(got, {"caching in '" + expected + "' instead", "set KILN_CACHE_DIR"});
    EXPECT_EQ(serve(uid, at(""), variables).outcome, "disk");
  }
}

TEST_F(PlacesTest, AHomeThatIsNotThereIsNotMadeEvenByRoot) {
  const Served got = serve(0, at(""), {{"HOME", tree_.at("nobody")}});
  EXPECT_EQ(got.outcome, "compiled");
  EXPECT_EQ(mode_of(tree_.at("nobody")), "absent");
}

TEST_F(PlacesTest, HomeAndXdgAreUsedWhereTheyAre) {
  const unsigned me = ::geteuid();
  make(tree_.at("home"), 0755, me);
  EXPECT_EQ(serve(0, at(""), {{"HOME", tree_.at("home")}}).directory, tree_.at("home/.cache/kiln"));
  EXPECT_EQ(mode_of(tree_.at("home/.cache/kiln")), "0700");
  const Variables both{{"HOME", tree_.at("home")}, {"XDG_CACHE_HOME", tree_.at("xdg")}};
  EXPECT_EQ(serve(0, at(""), both).directory, tree_.at("xdg/kiln"));
  const Variables relative{{"HOME", tree_.at("home")}, {"XDG_CACHE_HOME", "xdg"}};
  EXPECT_EQ(serve(0, at(""), relative).directory, tree_.at("home/.cache/kiln"));
}

TEST_F(PlacesTest, WithNowhereToWriteItWorksInMemoryWithOneWarning) {
  KILN_NEEDS_ROOT();
  // All users can write /var/tmp. A file that has our name there is in the way.
  const std::string in_the_way = "/var/tmp" + name_of(kUser);
  ASSERT_FALSE(std::filesystem::exists(in_the_way));
  base::write_file(in_the_way, "");
  make(tree_.at("locked"), 0755, 0);
  const Served got =
      serve(kUser, at(tree_.at("locked")), {{"TMPDIR", tree_.at("locked")}, {"HOME", "/nonexistent"}});
  std::filesystem::remove(in_the_way);
  EXPECT_EQ(got.outcome, "compiled");
  EXPECT_EQ(got.directory, "memory");
  expect_one_warning(got, {tree_.at("locked"), "nothing is cached on disk", "set KILN_CACHE_DIR"});
}

TEST_F(PlacesTest, ARootThatIsASymlinkIsFollowedWhenItIsOursOrRootsAndRefusedOtherwise) {
  KILN_NEEDS_ROOT();
  make(tree_.at("real"), 0700, kUser);
  for (const auto& [owner, followed] : {std::pair{kUser, true}, {0u, true}, {kStranger, false}}) {
    for (const char* below : {"", "/inside"}) {
      ::unlink(tree_.at("link").c_str());
      ASSERT_EQ(::symlink(tree_.at("real").c_str(), tree_.at("link").c_str()), 0);
      ASSERT_EQ(::lchown(tree_.at("link").c_str(), owner, owner), 0);
      const Served got = serve(kUser, at(tree_.at("link") + below));
      EXPECT_TRUE(got.outcome == "compiled" || got.outcome == "disk") << got.outcome;
      if (followed) {
        EXPECT_EQ(got.directory, tree_.at("link") + below);
        EXPECT_TRUE(got.warnings.empty());
      } else {
        EXPECT_EQ(got.directory, tree_.at("tmp") + name_of(kUser));
        expect_one_warning(got, {"a symlink of uid " + std::to_string(kStranger), "KILN_CACHE_DIR"});
      }
    }
  }
}

TEST_F(PlacesTest, AForeignSymlinkInTheTemporaryDirectoryIsRefused) {
  KILN_NEEDS_ROOT();
  make(tree_.at("trap"), 0777, kStranger);
  const std::string planted = tree_.at("tmp") + name_of(kUser);
  ASSERT_EQ(::symlink(tree_.at("trap").c_str(), planted.c_str()), 0);
  ASSERT_EQ(::lchown(planted.c_str(), kStranger, kStranger), 0);
  const Served got = serve(kUser, at(""));
  EXPECT_EQ(got.outcome, "compiled");
  EXPECT_EQ(got.directory, "/var/tmp" + name_of(kUser));
  EXPECT_FALSE(std::filesystem::exists(tree_.at("trap/v1")));
  remove_with_shared_memory("/var/tmp" + name_of(kUser));
}

}  // namespace
}  // namespace kiln::testing
