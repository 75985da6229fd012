// Where a store lies, and what it does with a place or a file that is not as it should be.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <random>

#include "kiln/error.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

/// How often this process has the file mapped.
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
      ASSERT_EQ(store->put(key_of(number), record_of(number)).put, Put::stored);
  }
  /// Error(io) whose text names the file or directory.
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
  EXPECT_EQ(store->put(key_of(1), record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*open(), 1));
  ASSERT_EQ(::chdir(before.c_str()), 0);
}

TEST_F(PlaceTest, ReadOnlyStoreReadsAndRefusesPuts) {
  fill();
  const auto store = open_read_only();
  EXPECT_FALSE(store->writable());
  EXPECT_TRUE(holds(*store, 3));
  EXPECT_EQ(store->put(key_of(99), record_of(99)).put, Put::read_only);
}

TEST_F(PlaceTest, ReadOnlyStoreWithoutAFileIsAnErrorAndCreatesNothing) {
  refusal([&] { open_read_only(); });
  EXPECT_NE(::access(directory().c_str(), F_OK), 0);
}

TEST_F(PlaceTest, ReadOnlyDirectoryServesReads) {
  fill();
  ASSERT_EQ(::chmod(data_file().c_str(), 0444), 0);
  ASSERT_EQ(::chmod((directory() + "/v1").c_str(), 0555), 0);
  const bool as_other = ::geteuid() == 0;  // permissions do not bind root
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

TEST_F(PlaceTest, TwoStoresOfOneFileShareOneMapping) {
  const auto first = open(), second = open(), reading = open_read_only();
  EXPECT_EQ(mappings_of(data_file()), 1);
  EXPECT_EQ(first->put(key_of(1), record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*second, 1));
  EXPECT_TRUE(holds(*reading, 1));
}

TEST_F(PlaceTest, SpellingsAndSymlinksOfAPathShareOneMapping) {
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
  EXPECT_EQ(mappings_of(data_file()), 1);
  EXPECT_EQ(stores[0]->put(key_of(1), record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*stores[2], 1));
}

TEST_F(PlaceTest, LastStoreClosesTheFile) {
  open();
  EXPECT_EQ(mappings_of(data_file()), 0);
}

TEST_F(PlaceTest, SpellingThatVanishesDoesNotTakeTheOthersAlong) {
  const std::string link = dir_.path() + "/link";
  open();
  ASSERT_EQ(::symlink(directory().c_str(), link.c_str()), 0);
  StoreOptions o = options();
  o.directory = link;
  const auto by_link = Store::open(o);
  const auto direct = open();  // shares the environment, which was opened through the link
  ASSERT_EQ(::unlink(link.c_str()), 0);
  EXPECT_EQ(direct->put(key_of(1), record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*direct, 1));
}

TEST_F(PlaceTest, ZeroLengthFileIsMadeAStore) {
  fill();
  ASSERT_EQ(::truncate(data_file().c_str(), 0), 0);
  refusal([&] { open_read_only(); });
  const auto store = open();
  EXPECT_EQ(store->get(key_of(1), record_of(1).key_text, soon()).miss, Miss::absent);
  EXPECT_EQ(store->put(key_of(1), record_of(1)).put, Put::stored);
}

TEST_F(PlaceTest, GarbageIsRefusedAndKept) {
  open();
  for (const std::size_t size : {1ul, 100ul, 4096ul, 8192ul, 100'000ul}) {
    const std::string garbage(size, 'g');
    base::write_file(data_file(), garbage);
    const std::string why = refusal([&] { open(); });
    EXPECT_NE(why.find("damaged"), std::string::npos) << why;
    refusal([&] { open_read_only(); });
    EXPECT_EQ(base::read_file(data_file())->bytes, garbage);
  }
}

TEST_F(PlaceTest, TruncatedFileIsRefusedAtEveryLength) {
  fill(20);
  const std::string whole = base::read_file(data_file())->bytes;
  int refused = 0, opened = 0;
  for (std::size_t size = 1; size < whole.size(); size += size < 9000 ? 97 : 4096) {
    base::write_file(data_file(), whole.substr(0, size));
    try {
      open();
      ++opened;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_EQ(opened, 0);
}

TEST_F(PlaceTest, DamagedMetaPagesAreRefusedOrServeNothingWrong) {
  // Every bit of both meta pages, each in a child: LMDB may abort on what it finds deeper, but nothing wrong
  // is served.
  fill(5);
  const std::string whole = base::read_file(data_file())->bytes;
  int crashed = 0, wrong = 0, refused = 0, right = 0, missed = 0;
  for (std::size_t bit = 0; bit < 2 * 152 * 8; bit += 3) {
    std::string damaged = whole;
    const std::size_t at = bit / 8 < 152 ? bit / 8 : 4096 + bit / 8 - 152;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit % 8);
    base::write_file(data_file(), damaged);
    const int status = in_child([&] {
      try {
        const auto store = open();
        int result = 0;
        for (std::uint32_t number = 0; number < 5; ++number) {
          const auto got = store->peek(key_of(number), soon());
          if (got && !same(*got, record_of(number))) return 2;
          if (!got) result = 3;
        }
        return result;
      } catch (const Error&) {
        return 1;
      }
    });
    (status > 128  ? crashed
     : status == 2 ? wrong
     : status == 1 ? refused
     : status == 3 ? missed
                   : right) += 1;
  }
  std::printf("meta bits: %d refused, %d right, %d missed, %d crashed, %d wrong\n", refused, right, missed,
              crashed, wrong);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(crashed, 0);
}

TEST_F(PlaceTest, FlippedBitsInTheDataNeverServeAWrongRecord) {
  fill(20);
  const std::string whole = base::read_file(data_file())->bytes;
  std::mt19937 random(1);
  int wrong = 0, crashed = 0, right = 0, missed = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = whole;
    const std::size_t at = 8192 + random() % (whole.size() - 8192);
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << random() % 8);
    base::write_file(data_file(), damaged);
    const int status = in_child([&] {
      const auto store = open();
      int result = 0;
      for (std::uint32_t number = 0; number < 20; ++number) {
        const auto got = store->get(key_of(number), record_of(number).key_text, soon());
        if (got.record && !same(*got.record, record_of(number))) return 2;
        if (!got.record) result = 3;
      }
      return result;
    });
    (status > 128 ? crashed : status == 2 ? wrong : status == 3 ? missed : right) += 1;
  }
  std::printf("data bits: %d right, %d missed, %d crashed in LMDB, %d wrong\n", right, missed, crashed,
              wrong);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(missed, 50);
  EXPECT_LT(crashed, 30);  // a process of its own verifies files that are suspected
}

TEST_F(PlaceTest, DamagedRecordIsAMissAndThePutHealsIt) {
  fill(3);
  {
    std::string bytes = base::read_file(data_file())->bytes;
    const std::string image = record_of(1).image.substr(1000, 64);
    const std::size_t at = bytes.find(image);
    ASSERT_NE(at, std::string::npos);
    for (std::size_t i = at; i != std::string::npos; i = bytes.find(image, i + 1)) bytes[i] ^= 1;
    base::write_file(data_file(), bytes);
  }
  const auto store = open();
  const auto result = store->get(key_of(1), record_of(1).key_text, soon());
  EXPECT_FALSE(result.record);
  EXPECT_EQ(result.miss, Miss::damaged);
  EXPECT_FALSE(store->peek(key_of(1), soon()));
  EXPECT_TRUE(store->find(key_of(1).specialisation, soon()).empty());
  EXPECT_TRUE(holds(*store, 0));
  EXPECT_EQ(store->put(key_of(1), record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*store, 1));
}

TEST_F(PlaceTest, FileThatShrinksUnderTheStoreIsAMiss) {
  fill(20);
  const auto store = open();
  EXPECT_TRUE(holds(*store, 1));
  ASSERT_EQ(::truncate(data_file().c_str(), 12'288), 0);
  EXPECT_EQ(store->get(key_of(1), record_of(1).key_text, soon()).miss, Miss::unreadable);
  EXPECT_EQ(store->put(key_of(1), record_of(1)).put, Put::failed);
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
    ASSERT_EQ(other->put(key_of(77), record_of(77)).put, Put::stored);
  }
  ASSERT_EQ(::rename((o.directory + "/v1/data.mdb").c_str(), data_file().c_str()), 0);
  EXPECT_TRUE(holds(*store, 77));
  EXPECT_TRUE(holds(*reading, 77));
  EXPECT_EQ(store->get(key_of(1), record_of(1).key_text, soon()).miss, Miss::absent);
  EXPECT_EQ(store->put(key_of(78), record_of(78)).put, Put::stored);
  EXPECT_TRUE(holds(*reading, 78));
  EXPECT_EQ(mappings_of(data_file()), 1);
  EXPECT_EQ(store->identity(), identity);
}

TEST_F(PlaceTest, DeletedFileIsMadeAgain) {
  fill(3);
  const auto store = open();
  ASSERT_EQ(std::system(("rm -r " + directory()).c_str()), 0);
  EXPECT_EQ(store->get(key_of(1), record_of(1).key_text, soon()).miss, Miss::absent);
  EXPECT_EQ(store->put(key_of(1), record_of(1)).put, Put::stored);
  EXPECT_TRUE(holds(*open(), 1));
}

TEST_F(PlaceTest, SmallerAddressSpaceGetsASmallerMap) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space";
#endif
  fill(3);
  EXPECT_EQ(in_child([&] {
              const rlimit limit{std::uint64_t{2} << 30, std::uint64_t{2} << 30};
              if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
              StoreOptions o = options();
              o.map_bytes = std::uint64_t{64} << 30;
              const auto store = Store::open(o);
              return holds(*store, 1) && store->put(key_of(9), record_of(9)).put == Put::stored ? 0 : 1;
            }),
            0);
}

TEST_F(PlaceTest, SmallMapFollowsAFileThatOutgrewIt) {
  StoreOptions small = options();
  small.map_bytes = 1 << 20;
  const auto store = Store::open(small);
  EXPECT_EQ(in_child([&] {
              const auto big = open();
              for (std::uint32_t number = 0; number < 40; ++number)
                if (big->put(key_of(number), record_of(number, 100'000)).put != Put::stored) return 1;
              return 0;
            }),
            0);
  for (std::uint32_t number = 0; number < 40; ++number) EXPECT_TRUE(holds(*store, number, 100'000)) << number;
}

TEST_F(PlaceTest, DescriptorsAreCloseOnExec) {
  const auto store = open();
  ASSERT_EQ(store->put(key_of(1), record_of(1)).put, Put::stored);
  const std::string command = "! ls -l /proc/self/fd | grep -q " + data_file();
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(PlaceTest, ConcurrentCreationMakesOneStore) {
  std::vector<pid_t> children;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(open()->put(key_of(i), record_of(i)).put == Put::stored ? 0 : 1);
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
