// The place of a store, and faults of the directory or the data file.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <random>

#include "kiln/error.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

/// The number of mappings of the file in this process.
int mappings_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return -1;
  const std::string inode = " " + std::to_string(st.st_ino) + " ";
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(inode) != std::string::npos;
  return count;
}

class PlaceTest : public StoreFixture {
 protected:
  void fill(std::uint32_t count = 10) {
    const auto store = open();
    for (std::uint32_t number = 0; number < count; ++number)
      ASSERT_EQ(store->put(record_of(number)).put, Put::stored);
  }
  /// Expects Error(io) that names the file or directory, and returns its text.
  template <class Open>
  std::string refusal(Open&& open_it) {
    try {
      open_it();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::io);
      EXPECT_NE(std::string(error.what()).find(dir_.path()), std::string::npos) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "opened";
    return {};
  }
  static mode_t mode_of(const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 ? st.st_mode & 07777 : 0;
  }
};

TEST_F(PlaceTest, DirectoriesAndFileArePrivate) {
  StoreOptions o = options();
  o.directory = directory() + "/a/b";
  const auto store = Store::open(o);
  EXPECT_EQ(mode_of(directory()), 0700u);
  EXPECT_EQ(mode_of(directory() + "/a/b/v1"), 0700u);
  EXPECT_EQ(mode_of(directory() + "/a/b/v1/data.mdb"), 0600u);
  EXPECT_EQ(store->directory(), o.directory);
  EXPECT_TRUE(store->writable());
}

TEST_F(PlaceTest, CreationLeavesNoTemporaryFile) {
  open();
  EXPECT_EQ(std::system(("test $(ls -A " + directory() + "/v1 | wc -l) = 1").c_str()), 0);
}

TEST_F(PlaceTest, DirectoryThatCannotBeCreatedIsAnErrorThatSaysWhatToDo) {
  base::write_file(dir_.path() + "/file", "");
  StoreOptions o = options();
  o.directory = dir_.path() + "/file/store";
  const std::string why = refusal([&] { Store::open(o); });
  EXPECT_NE(why.find("KILN_CACHE_DIR"), std::string::npos) << why;
}

TEST_F(PlaceTest, RelativeDirectorySurvivesChdir) {
  const std::string before = [] {
    char cwd[4096];
    return std::string(::getcwd(cwd, sizeof cwd));
  }();
  ASSERT_EQ(::chdir(dir_.path().c_str()), 0);
  StoreOptions o = options();
  o.directory = "store";
  const auto store = Store::open(o);
  ASSERT_EQ(::chdir("/"), 0);
  EXPECT_EQ(store->put(record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*open(), 1));
  ASSERT_EQ(::chdir(before.c_str()), 0);
}

TEST_F(PlaceTest, ReadOnlyStoreReadsAndRefusesPuts) {
  fill();
  const auto store = open_read_only();
  EXPECT_FALSE(store->writable());
  EXPECT_TRUE(holds(*store, 3));
  EXPECT_EQ(store->put(record_of(99)).put, Put::read_only);
}

TEST_F(PlaceTest, ReadOnlyStoreWithoutAFileIsAnErrorAndCreatesNothing) {
  refusal([&] { open_read_only(); });
  EXPECT_NE(::access(directory().c_str(), F_OK), 0);
}

TEST_F(PlaceTest, ReadOnlyDirectoryServesReads) {
  fill();
  ASSERT_EQ(::chmod(data_file().c_str(), 0444), 0);
  ASSERT_EQ(::chmod((directory() + "/v1").c_str(), 0555), 0);
  const bool as_other = ::geteuid() == 0;  // root may write in any directory
  EXPECT_EQ(
      in_child([&] {
        if (as_other && (::chmod(dir_.path().c_str(), 0755) != 0 || ::chmod(directory().c_str(), 0755) != 0 ||
                         ::setgid(12345) != 0 || ::setuid(12345) != 0))
          return 2;
        try {
          open();
          return 3;
        } catch (const Error& error) {
          if (std::string(error.what()).find("Permission denied") == std::string::npos) return 4;
        }
        return holds(*open_read_only(), 3) ? 0 : 1;
      }),
      0);
  ::chmod((directory() + "/v1").c_str(), 0755);
}

TEST_F(PlaceTest, NothingStaysMappedBetweenPuts) {
  const auto first = open(), second = open(), reading = open_read_only();
  EXPECT_EQ(first->put(record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*second, 1));
  EXPECT_TRUE(holds(*reading, 1));
  EXPECT_EQ(mappings_of(data_file()), 0);
}

TEST_F(PlaceTest, SpellingsAndSymlinksOfAPathAreOneStore) {
  const auto first = open();
  ASSERT_EQ(::symlink(directory().c_str(), (dir_.path() + "/link").c_str()), 0);
  std::vector<std::shared_ptr<Store>> stores;
  for (const std::string& spelling :
       {dir_.path() + "/link", dir_.path() + "/./store/", dir_.path() + "/link/../store"}) {
    StoreOptions o = options();
    o.directory = spelling;
    stores.push_back(Store::open(o));
    EXPECT_EQ(stores.back()->identity(), first->identity());
  }
  EXPECT_EQ(stores[0]->put(record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*stores[2], 1));
}

TEST_F(PlaceTest, SpellingThatVanishesDoesNotTakeTheOthersAlong) {
  const std::string link = dir_.path() + "/link";
  open();
  ASSERT_EQ(::symlink(directory().c_str(), link.c_str()), 0);
  StoreOptions o = options();
  o.directory = link;
  const auto by_link = Store::open(o);
  const auto direct = open();  // shares the environment that was opened through the link
  ASSERT_EQ(::unlink(link.c_str()), 0);
  EXPECT_EQ(direct->put(record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*direct, 1));
}

TEST_F(PlaceTest, ReplacedFileIsFollowed) {
  fill(3);
  const auto store = open();
  const auto reading = open_read_only();
  EXPECT_TRUE(holds(*store, 1));
  const std::string identity = store->identity();
  StoreOptions o = options();
  o.directory = dir_.path() + "/other";
  {
    const auto other = Store::open(o);
    ASSERT_EQ(other->put(record_of(77)).put, Put::stored);
  }
  ASSERT_EQ(::rename((o.directory + "/v1/data.mdb").c_str(), data_file().c_str()), 0);
  EXPECT_TRUE(holds(*store, 77));
  EXPECT_TRUE(holds(*reading, 77));
  EXPECT_EQ(store->get(key_of(1), record_of(1).key_text, soon()).miss, Miss::absent);
  EXPECT_EQ(store->put(record_of(78)).put, Put::stored);
  EXPECT_TRUE(holds(*reading, 78));
  EXPECT_EQ(store->identity(), identity);
}

TEST_F(PlaceTest, DeletedFileIsMadeAgain) {
  fill(3);
  const auto store = open();
  ASSERT_EQ(std::system(("rm -r " + directory()).c_str()), 0);
  EXPECT_EQ(store->get(key_of(1), record_of(1).key_text, soon()).miss, Miss::absent);
  EXPECT_EQ(store->put(record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*open(), 1));
}

TEST_F(PlaceTest, SmallAddressSpaceIsEnough) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space";
#endif
  fill(3);
  EXPECT_EQ(in_child([&] {
              const rlimit limit{std::uint64_t{128} << 20, std::uint64_t{128} << 20};
              if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
              StoreOptions o = options();
              o.cap_bytes = std::uint64_t{64} << 30;
              const auto store = Store::open(o);
              return holds(*store, 1) && store->put(record_of(9)).put == Put::stored ? 0 : 1;
            }),
            0);
}

TEST_F(PlaceTest, IdleStoreLetsAReplacedFileGo) {
  StoreOptions o = options();
  o.upkeep = std::chrono::milliseconds(50);
  const auto store = Store::open(o);
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);  // starts the upkeep thread
  ASSERT_EQ(store->put(record_of(2)).put, Put::stored);
  ASSERT_EQ(::unlink(data_file().c_str()), 0);
  const auto deleted_files = [] {
    FILE* pipe = ::popen(
        ("ls -l /proc/" + std::to_string(::getpid()) + "/fd | grep -c 'data.mdb (deleted)'").c_str(), "r");
    int count = -1;
    if (std::fscanf(pipe, "%d", &count) != 1) count = -1;
    ::pclose(pipe);
    return count;
  };
  EXPECT_GT(deleted_files(), 0);
  EXPECT_TRUE(base::poll_until(soon(), [&] { return deleted_files() == 0; }));
}

TEST_F(PlaceTest, DescriptorsAreCloseOnExec) {
  const auto store = open();
  ASSERT_EQ(store->put(record_of(1)).put, Put::stored);
  const std::string command = "! ls -l /proc/self/fd | grep -q " + data_file();
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(PlaceTest, ConcurrentCreationMakesOneStore) {
  std::vector<pid_t> children;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(open()->put(record_of(i)).put == Put::stored ? 0 : 1);
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto store = open();
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(holds(*store, i)) << i;
}

}  // namespace
}  // namespace kiln::cache::test
