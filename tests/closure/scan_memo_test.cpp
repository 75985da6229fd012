// The memory of toolkit headers across processes. It may give a hit, but never changes a record.
#include "closure/scan_memo.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/hash.hpp"
#include "support/tree.hpp"

namespace kiln::source {
namespace {

class ScanMemoTest : public ::testing::Test {
 protected:
  ScanMemoTest() {
    path_ = tree_.write("kit/a.h", "#include <b.h>\n#define TARGET <c.h>\n");
    entry_.stamp = *base::FileStamp::of(path_);
    entry_.digest = base::digest_of(std::string_view("remembered"));
    entry_.scan = std::make_shared<const ScanResult>(
        scan_includes("#include <b.h>\n#include_next <d.h>\n#define T <c.h>\n#define X y\n#include X\n"));
    entry_.settled = true;
  }
  std::string file() const { return tree_.at("memo"); }
  void save() const {
    ScanMemo memo(file());
    memo.add(path_, entry_);
    memo.save();
  }
  bool found() const { return ScanMemo(file()).find(path_).has_value(); }

  kiln::testing::Tree tree_;
  std::string path_;
  ScanCache::Scanned entry_;
};

TEST_F(ScanMemoTest, SurvivesTheProcessWithEveryField) {
  save();
  const auto got = ScanMemo(file()).find(path_);
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->memoised);
  EXPECT_EQ(got->stamp, entry_.stamp);
  EXPECT_EQ(got->digest, entry_.digest);
  EXPECT_EQ(got->scan->directives, entry_.scan->directives);
  EXPECT_EQ(got->scan->definitions, entry_.scan->definitions);
  EXPECT_EQ(got->scan->operands, (std::vector<std::string>{"X"}));
  EXPECT_EQ(got->scan->computed, entry_.scan->computed);
  struct stat st;
  ASSERT_EQ(::stat(file().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777u, 0600u);
}

TEST_F(ScanMemoTest, IsIgnoredWhenOthersCouldHaveWrittenIt) {
  save();
  ::chmod(file().c_str(), 0644);
  EXPECT_FALSE(found());
  ::chmod(file().c_str(), 0600);
  EXPECT_TRUE(found());
  std::filesystem::rename(file(), tree_.at("elsewhere"));
  std::filesystem::create_symlink(tree_.at("elsewhere"), file());
  EXPECT_FALSE(found()) << "a planted symlink";
  if (::geteuid() == 0) {
    std::filesystem::remove(file());
    save();
    ASSERT_EQ(::chown(file().c_str(), 12345, 12345), 0);
    EXPECT_FALSE(found()) << "another user's";
  }
}

TEST_F(ScanMemoTest, DamageAndTruncationAreIgnored) {
  save();
  const std::string good = base::read_file(file())->bytes;
  for (std::size_t n = 0; n < good.size(); ++n) {
    base::write_file(file(), good.substr(0, n), 0600);
    EXPECT_FALSE(found()) << n;
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    base::write_file(file(), bad, 0600);
    EXPECT_FALSE(found()) << i;
  }
}

TEST_F(ScanMemoTest, DecidesOnlyForToolkitFilesOnlyWhenTrustedOnlyWithTheSameStamp) {
  save();
  const auto digest = [&](bool toolkit, Trust trust) {
    return ScanCache(file()).look(path_, toolkit, trust)->digest;
  };
  EXPECT_EQ(digest(true, Trust::memo), entry_.digest);
  EXPECT_NE(digest(true, Trust::content), entry_.digest) << "a compile hashes again";
  EXPECT_NE(digest(false, Trust::memo), entry_.digest) << "project files are hashed in every process";
  tree_.write("kit/a.h", "#include <B.h>\n#define TARGET <c.h>\n");  // same size
  EXPECT_NE(digest(true, Trust::memo), entry_.digest);
}

TEST_F(ScanMemoTest, YoungFilesAreNotRemembered) {
  ScanCache cache(file());
  cache.look(tree_.write("kit/young.h", "\n", true), true, Trust::memo);
  cache.save();
  EXPECT_FALSE(ScanMemo(file()).find(tree_.at("kit/young.h")));
}

}  // namespace
}  // namespace kiln::source
