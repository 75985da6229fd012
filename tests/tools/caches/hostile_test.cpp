// Lists of files that somebody planted: a restore writes nothing outside of its directory.
#include "base/hash.hpp"
#include "base/wire.hpp"
#include "tools/caches/fixture.hpp"

using namespace kiln;
using namespace kiln::test;

namespace fs = std::filesystem;

namespace {

/// Builds the bytes of a list, without the checks of the product.
struct List {
  base::Writer out;
  explicit List(std::uint32_t count) {
    out.str() += "kilntree";
    out.number(std::uint32_t{1}).bytes("/somewhere").number(std::uint32_t{0755}).number(count);
  }
  List& directory(const std::string& path) {
    out.number(std::uint8_t{0}).bytes(path).number(std::uint32_t{0755});
    return *this;
  }
  List& file(const std::string& path, std::uint32_t mode = 0644) {
    const std::string_view bytes = "planted";
    const Digest digest = base::digest_of(bytes);
    out.number(std::uint8_t{1}).bytes(path).number(mode);
    out.number(std::uint64_t{bytes.size()}).number(std::int64_t{1'700'000'000'000'000'000});
    out.str().append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
    return *this;
  }
  List& symlink(const std::string& path, const std::string& target) {
    out.number(std::uint8_t{3}).bytes(path).number(std::uint32_t{0777}).bytes(target);
    return *this;
  }
  const std::string& bytes() { return out.str(); }
};

struct HostileList : CachesCommand {
  void SetUp() override {
    CachesCommand::SetUp();
    put({"files", "kiln-files 1", base::digest_of(std::string_view("planted")).hex()}, "planted");
    write("precious", "precious");
    write("outside_is_fine", "x");
  }
  /// Nothing is written, neither into a directory that exists nor into one that does not.
  void expect_refused(const std::string& list, const std::string& why) {
    for (const std::string place : {"absent", "present"}) {
      fs::remove_all(path("present"));
      fs::create_directory(path("present"));
      plant(list, path(place));
      const auto before = names();
      auto json = restore({"planted", "--to", path(place)});
      EXPECT_EQ(json["found"], false) << why;
      EXPECT_NE(json.value("reason", "").find(why), std::string::npos) << json << "; expected " << why;
      EXPECT_EQ(names(), before) << why;
    }
    EXPECT_EQ(text_of("precious"), "precious");
  }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(scratch())) {
      const std::string below = fs::relative(entry.path(), scratch()).string();
      // The store, and the outputs of the commands.
      if (!below.starts_with("cache") && !below.starts_with("run")) out.insert(below);
    }
    return out;
  }
};

}  // namespace

TEST_F(HostileList, TheGoodListIsRestored) {
  plant(List(3).directory("d").file("d/f").symlink("d/l", "../d/f").bytes(), path("place"));
  EXPECT_EQ(restore({"planted", "--to", path("place")})["written"], 1);
  EXPECT_EQ(text_of("place/d/f"), "planted");
}

TEST_F(HostileList, APathThatLeavesTheDirectoryIsRefused) {
  for (const std::string bad :
       {"../precious", "..", ".", "", "/precious", "d/../../precious", "d//f", "./f", "d/.", "f/"})
    expect_refused(List(2).directory("d").file(bad).bytes(), "leaves the directory");
  expect_refused(List(1).file(path("precious")).bytes(), "leaves the directory");
  expect_refused(List(1).file(std::string("f\0g", 3)).bytes(), "leaves the directory");
  expect_refused(List(1).directory("../present2").bytes(), "leaves the directory");
}

TEST_F(HostileList, APathBelowASymlinkOrAFileIsRefused) {
  expect_refused(List(2).symlink("s", "d").file("s/f").bytes(), "not in the list");
  expect_refused(List(3).directory("s").symlink("s", "elsewhere").file("s/f").bytes(), "comes twice");
  expect_refused(List(2).file("f").file("f/g").bytes(), "not in the list");
  expect_refused(List(1).file("d/f").bytes(), "not in the list");
}

TEST_F(HostileList, ASymlinkThatLeavesTheDirectoryIsRefused) {
  for (const std::string bad : {"/etc/passwd", "..", "../precious", "d/../../precious", "d/..", "", "./d"})
    expect_refused(List(2).directory("d").symlink("s", bad).bytes(), "symlink leaves");
  expect_refused(List(2).directory("d").symlink("d/s", "../../precious").bytes(), "symlink leaves");
}

TEST_F(HostileList, OversizedCountsAndTornListsAreRefused) {
  expect_refused(List(0xffffffff).file("f").bytes(), "out of bounds");
  expect_refused(List(2).file("f").bytes(), "ends early");
  expect_refused(List(1).file("f").bytes() + "more", "after the end");
  const std::string whole = List(1).file("f").bytes();
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{12}, whole.size() - 1})
    expect_refused(whole.substr(0, size), "cannot be used");
  std::string other_version = whole;
  other_version[8] = 2;
  expect_refused(other_version, "another version");
}

TEST_F(HostileList, NoModeMakesAFileSetUid) {
  plant(List(1).file("f", 06777).bytes(), path("place"));
  EXPECT_EQ(restore({"planted", "--to", path("place")})["written"], 1);
  struct stat status {};
  ASSERT_EQ(::stat(path("place/f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07000, 0u);
}

TEST_F(HostileList, ASymlinkInThePlaceOfADirectoryIsNotFollowed) {
  fs::create_directories(path("place"));
  fs::create_directories(path("elsewhere"));
  fs::create_symlink(path("elsewhere"), path("place/d"));
  plant(List(2).directory("d").file("d/f").bytes(), path("place"));
  for (const Arguments& more : {Arguments{}, Arguments{"--force"}}) {
    Arguments arguments = {"caches", "restore", "planted", "--to", path("place")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished done = kiln(arguments);
    EXPECT_EQ(done.status, 2) << done.out;
    EXPECT_NE(done.err.find("nothing was restored"), std::string::npos) << done.err;
  }
  EXPECT_TRUE(fs::is_empty(path("elsewhere")));
}

TEST_F(HostileList, ASymlinkInThePlaceOfAFileIsReplacedAndNotWrittenThrough) {
  fs::create_directories(path("place"));
  fs::create_symlink(path("precious"), path("place/f"));
  plant(List(1).file("f").bytes(), path("place"));
  EXPECT_EQ(restore({"planted", "--to", path("place")})["kept"], 1);
  EXPECT_EQ(restore({"planted", "--to", path("place"), "--force"})["written"], 1);
  EXPECT_EQ(text_of("precious"), "precious");
  EXPECT_EQ(text_of("place/f"), "planted");
  EXPECT_FALSE(fs::is_symlink(path("place/f")));
}
