// The checks of a directory before a store is opened in it.
#include "cache/place/directory.hpp"
#include "cache/place/filesystem.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "kiln/error.hpp"
#include "support/other_user.hpp"
#include "support/tree.hpp"

namespace kiln::testing {
namespace {

using namespace cache;

/// The text of the error that `check` throws; "" when it throws none.
template <class Check>
std::string refusal(Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::io);
    return error.what();
  }
  return {};
}

class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() { ::chmod(tree_.path().c_str(), 0755); }
  void link(const std::string& name, const std::string& target, unsigned owner = ::geteuid()) {
    ASSERT_EQ(::symlink(target.c_str(), tree_.at(name).c_str()), 0);
    if (owner != ::geteuid()) {
      ASSERT_EQ(::lchown(tree_.at(name).c_str(), owner, owner), 0);
    }
  }
  std::string link_refusal(const std::string& name) {
    return refusal([&] { refuse_foreign_links(tree_.at(name)); });
  }
  const unsigned me_ = ::geteuid();
  Tree tree_;
};

TEST_F(DirectoryTest, OurOwnLinksAreFollowedHoweverTheyAreSpelt) {
  make(tree_.at("real/deep"), 0700, me_);
  link("absolute", tree_.at("real"));
  link("relative", "real");
  link("real/up", "../relative/deep");
  for (const char* name : {"real/deep", "absolute/deep", "relative/./deep/", "real/up", "real/up/../deep",
                           "absolute/not/there/yet", "//real"})
    EXPECT_EQ(link_refusal(name), "") << name;
}

TEST_F(DirectoryTest, LinksThatNeverEndAreRefused) {
  link("a", "b");
  link("b", "a");
  EXPECT_NE(link_refusal("a/store").find("too many symlinks"), std::string::npos);
}

TEST_F(DirectoryTest, ALinkOfSomebodyElseIsRefusedWhereverItStands) {
  KILN_NEEDS_ROOT();
  make(tree_.at("real/deep"), 0755, 0);
  link("foreign", tree_.at("real"), kStranger);
  link("ours", tree_.at("foreign"));
  link("real/inner", "deep", kStranger);
  for (const char* name : {"foreign", "foreign/deep", "ours", "ours/deep/x", "real/inner/store"}) {
    const std::string text = link_refusal(name);
    EXPECT_NE(text.find("a symlink of uid " + std::to_string(kStranger)), std::string::npos) << name << text;
  }
  EXPECT_EQ(link_refusal("real/deep"), "");
  EXPECT_EQ(as_user(kUser,
                    [&] {
                      ::lchown(tree_.at("ours").c_str(), 0, 0);
                      return link_refusal("real/deep");
                    }),
            "");
}

TEST_F(DirectoryTest, ALinkOfRootIsFollowedByEverybody) {
  KILN_NEEDS_ROOT();
  make(tree_.at("real"), 0755, 0);
  link("rooted", tree_.at("real"));
  EXPECT_EQ(as_user(kUser, [&] { return link_refusal("rooted/store"); }), "");
}

TEST_F(DirectoryTest, AStoreLiesInItsDirectoryOrInThePrivateOneInside) {
  const std::string inside = '/' + private_name();
  EXPECT_EQ(own_directory(tree_.at("new/one")), tree_.at("new/one"));
  EXPECT_EQ(mode_of(tree_.at("new")), "absent") << "creates nothing";
  for (const auto& [mode, expected] :
       std::initializer_list<std::pair<unsigned, std::string>>{{0700, ""},
                                                               {0755, ""},
                                                               {0750, ""},
                                                               {0770, inside},
                                                               {0777, inside},
                                                               {01777, inside},
                                                               {0702, inside}}) {
    make(tree_.at("d"), mode, me_);
    EXPECT_EQ(own_directory(tree_.at("d")), tree_.at("d") + expected) << std::oct << mode;
  }
  tree_.write("file", "");
  EXPECT_NE(refusal([&] { own_directory(tree_.at("file")); }).find("not a directory"), std::string::npos);
}

TEST_F(DirectoryTest, ADirectoryOfSomebodyElseGetsAPrivateOneInside) {
  KILN_NEEDS_ROOT();
  make(tree_.at("d"), 0755, kStranger);
  EXPECT_EQ(own_directory(tree_.at("d")), tree_.at("d/kiln-0"));
  EXPECT_EQ(as_user(kUser, [&] { return own_directory(tree_.at("d")); }),
            tree_.at("d/kiln-" + std::to_string(kUser)));
}

TEST_F(DirectoryTest, WhatIsMadeIs0700WhateverTheUmask) {
  const mode_t before = ::umask(0);
  make_own(tree_.at("a/b/c"), FinalLink::refused);
  ::umask(before);
  for (const char* name : {"a", "a/b", "a/b/c"}) EXPECT_EQ(mode_of(tree_.at(name)), "0700") << name;
}

TEST_F(DirectoryTest, WhatIsNotOursAloneIsNoPrivateDirectory) {
  make(tree_.at("real"), 0700, me_);
  link("link", "real");
  make(tree_.at("open"), 0777, me_);
  tree_.write("file", "");
  EXPECT_EQ(refusal([&] { make_own(tree_.at("link"), FinalLink::followed); }), "");
  EXPECT_NE(refusal([&] { make_own(tree_.at("link"), FinalLink::refused); }), "");
  EXPECT_NE(refusal([&] { make_own(tree_.at("open"), FinalLink::followed); }), "");
  EXPECT_NE(refusal([&] { make_own(tree_.at("file"), FinalLink::followed); }), "");
  EXPECT_NE(refusal([&] { make_own(tree_.at("file/below"), FinalLink::followed); }), "");
  if (me_ == 0) {
    make(tree_.at("theirs"), 0700, kStranger);
    EXPECT_NE(refusal([&] { make_own(tree_.at("theirs"), FinalLink::followed); }), "");
  }
}

TEST_F(DirectoryTest, APlantedStoreIsSeen) {
  make(tree_.at("d/v1"), 0700, me_);
  EXPECT_EQ(refusal([&] { check_own_store(tree_.at("d")); }), "");
  tree_.write("d/v1/data.mdb", "");
  ::chmod(tree_.at("d/v1/data.mdb").c_str(), 0600);
  EXPECT_EQ(refusal([&] { check_own_store(tree_.at("d")); }), "");
  ::chmod(tree_.at("d/v1/data.mdb").c_str(), 0666);
  EXPECT_NE(refusal([&] { check_own_store(tree_.at("d")); }), "");
  ::chmod(tree_.at("d/v1/data.mdb").c_str(), 0600);
  ::chmod(tree_.at("d/v1").c_str(), 0770);
  EXPECT_NE(refusal([&] { check_own_store(tree_.at("d")); }), "");
  if (me_ != 0) return;
  make(tree_.at("d/v1"), 0700, kStranger);
  EXPECT_NE(refusal([&] { check_own_store(tree_.at("d")); }), "");
}

TEST_F(DirectoryTest, ALayerBelongsToRootOrThisUserAndNobodyElseWritesIt) {
  const std::string layer = tree_.at("layer");
  const auto layer_refusal = [&] { return refusal([&] { check_layer(layer); }); };
  EXPECT_NE(layer_refusal(), "") << "missing";
  make_layer(layer);
  EXPECT_EQ(mode_of(layer + "/v1"), "0755");
  EXPECT_NE(layer_refusal(), "") << "empty";
  tree_.write("layer/v1/data.mdb", "");
  tree_.write("layer/v1/other", "");
  ::chmod((layer + "/v1/data.mdb").c_str(), 0600);
  share_layer(layer);
  EXPECT_EQ(mode_of(layer + "/v1/data.mdb"), "0644");
  EXPECT_EQ(mode_of(layer + "/v1/other"), "0644");
  EXPECT_EQ(layer_refusal(), "");
  if (me_ == 0) {
    EXPECT_EQ(as_user(kUser, layer_refusal), "") << "root's, and readable";
  }
  for (const std::string& part : {layer, layer + "/v1", layer + "/v1/data.mdb"}) {
    const unsigned good = part == layer + "/v1/data.mdb" ? 0644 : 0755;
    for (const unsigned bad : {good | 020, good | 02}) {
      ::chmod(part.c_str(), bad);
      EXPECT_NE(layer_refusal().find("others may write it"), std::string::npos) << part;
    }
    ::chmod(part.c_str(), good);
    if (me_ != 0) continue;
    ASSERT_EQ(::chown(part.c_str(), kStranger, kStranger), 0);
    EXPECT_NE(layer_refusal().find("belongs to uid " + std::to_string(kStranger)), std::string::npos) << part;
    EXPECT_EQ(as_user(kStranger, layer_refusal), "") << "his own, " << part;
    ASSERT_EQ(::chown(part.c_str(), 0, 0), 0);
  }
  EXPECT_NE(refusal([] { check_layer("relative/layer"); }).find("absolute"), std::string::npos);
}

TEST_F(DirectoryTest, FilesystemsAreNamed) {
  EXPECT_FALSE(filesystem_of(tree_.path()).network);
  EXPECT_EQ(filesystem_of(tree_.at("not/there")).name, filesystem_of(tree_.path()).name)
      << "of the nearest directory that exists";
  EXPECT_GT(filesystem_of("/").free_bytes, 0u);
  EXPECT_EQ(filesystem_of("/proc").name, "type 0x9fa0");
  if (std::filesystem::exists("/dev/shm")) {
    EXPECT_TRUE(filesystem_of("/dev/shm").volatile_);
  }
  EXPECT_EQ(refusal([&] { refuse_network(tree_.at("a/b")); }), "");
}

}  // namespace
}  // namespace kiln::testing
