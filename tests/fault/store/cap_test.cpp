// A store whose file is larger than the cap of the process that puts. Either the cap was
// lowered, or another process has a larger cap. Each put leaves the file within its own
// process's cap, and loses no more records than needed.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <atomic>

#include "cache/lock/fd_pool.hpp"
#include "cache/lock/gate.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kCapMiB = 1 << 20;
constexpr std::size_t kSize = 50'000, kStored = 13 * 4096;  // kStored: in whole pages
constexpr std::uint32_t kFilled = 180;                      // 9 MB

class CapTest : public StoreFixture {
 protected:
  std::shared_ptr<Store> open_capped(std::uint64_t bytes) const {
    StoreOptions o = options();
    o.cap_bytes = bytes;
    return Store::open(o);
  }
  std::uint64_t file_bytes() const {
    struct stat st {};
    return ::stat(data_file().c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
  }
  /// Fills the store in a separate process, like a service before its cap was lowered.
  int fill() const {
    return child([&] {
      const auto store = open_capped(100 * kCapMiB);
      for (std::uint32_t number = 0; number < kFilled; ++number)
        if (store->put(record_of(number, kSize)).put != Put::stored) return 1;
      return 0;
    });
  }
  static std::uint64_t kept(Store& store, std::uint32_t first, std::uint32_t last) {
    std::uint64_t out = 0;
    for (std::uint32_t number = first; number < last; ++number) {
      const auto got = store.peek(key_of(number), soon());
      out += got && same(*got, record_of(number, kSize));
    }
    return out;
  }
};

class LoweredCap : public CapTest, public ::testing::WithParamInterface<std::uint64_t> {};

TEST_P(LoweredCap, PutMakesRoomAndKeepsWhatWasUsedLast) {
  ASSERT_EQ(fill(), 0);
  ASSERT_GT(file_bytes(), GetParam());
  const auto store = open_capped(GetParam());
  const PutResult got = store->put(record_of(1000, kSize));
  ASSERT_EQ(got.put, Put::stored) << got.detail;
  EXPECT_TRUE(holds(*store, 1000, kSize));
  EXPECT_LE(file_bytes(), GetParam());
  const std::uint64_t left = kept(*store, 0, kFilled);
  EXPECT_EQ(got.evicted, kFilled - left);
  EXPECT_GT(left * kStored, GetParam() / 10 * 7) << "no more goes than has to";
  EXPECT_EQ(kept(*store, static_cast<std::uint32_t>(kFilled - left), kFilled), left) << "the oldest went";
  EXPECT_TRUE(store->verify().damaged.empty());
}

TEST_P(LoweredCap, EachNewProcessGoesOnPutting) {
  ASSERT_EQ(fill(), 0);
  for (std::uint32_t number = 1000; number < 1020; ++number) {
    ASSERT_EQ(child([&] {
                const auto store = open_capped(GetParam());
                const PutResult got = store->put(record_of(number, kSize));
                if (got.put != Put::stored) std::fprintf(stderr, "%s\n", got.detail.c_str());
                return got.put == Put::stored && holds(*store, number, kSize) ? 0 : 1;
              }),
              0);
    ASSERT_LE(file_bytes(), GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Caps, LoweredCap,
                         ::testing::Values(4 * kCapMiB, 5 * kCapMiB, 6 * kCapMiB, 7 * kCapMiB, 8 * kCapMiB,
                                           8500 * 1024));

TEST_F(CapTest, ManyAtOnceAreStoredUnderALoweredCap) {
  ASSERT_EQ(fill(), 0);
  const auto store = open_capped(5 * kCapMiB);
  std::vector<Record> records;
  for (std::uint32_t number = 1000; number < 1020; ++number) records.push_back(record_of(number, kSize));
  for (const PutResult& got : store->put_many(records)) EXPECT_EQ(got.put, Put::stored) << got.detail;
  EXPECT_EQ(kept(*store, 1000, 1020), 20u);
  EXPECT_LE(file_bytes(), 5 * kCapMiB);
}

TEST_F(CapTest, TwoProcessesWithDifferentCapsBothStoreWhatTheyPut) {
  const auto small = open_capped(5 * kCapMiB), large = open_capped(20 * kCapMiB);
  std::uint32_t number = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 40; ++i, ++number) {
      const PutResult got = large->put(record_of(number, kSize));
      ASSERT_EQ(got.put, Put::stored) << got.detail;
    }
    const PutResult got = small->put(record_of(number, kSize));
    ASSERT_EQ(got.put, Put::stored) << got.detail;
    ASSERT_LE(file_bytes(), 5 * kCapMiB);
    ASSERT_EQ(kept(*large, number - 40, number + 1), 41u);
    ++number;
  }
}

TEST_F(CapTest, ReadersMissNothingThatStaysWhileTheFileIsRewritten) {
  ASSERT_EQ(fill(), 0);
  const auto large = open_capped(100 * kCapMiB), small = open_capped(5 * kCapMiB);
  ASSERT_EQ(small->put(record_of(999, kSize)).put, Put::stored);
  const Shared<std::atomic<int>> rounds;
  const pid_t reader = ::fork();
  if (reader == 0) {
    ::alarm(7200);  // ends the child if the test program is killed
    const auto own = open_capped(100 * kCapMiB);
    for (;; ++*rounds)
      for (std::uint32_t number = kFilled - 20; number < kFilled; ++number)
        if (!holds(*own, number, kSize)) ::_exit(1);
  }
  int status = 0;
  for (std::uint32_t number = 1000; number < 1300; ++number) {
    const bool shrinks = number % 60 == 0;
    // Two more ends of rounds contain one whole round after the last put. In it the reader used each entry.
    const int before = *rounds;
    const auto has_read = [&] { return !shrinks || *rounds >= before + 2; };
    base::poll_until(base::Deadline::after(600s),
                     [&] { return has_read() || ::waitpid(reader, &status, WNOHANG) != 0; });
    ASSERT_TRUE(has_read()) << "the reader missed one";
    const PutResult got = (shrinks ? small : large)->put(record_of(number, kSize));
    ASSERT_EQ(got.put, Put::stored) << got.detail;
  }
  EXPECT_EQ(::waitpid(reader, &status, WNOHANG), 0) << "the reader missed one";
  ::kill(reader, SIGKILL);
  ::waitpid(reader, &status, 0);
}

TEST_F(CapTest, DiskWithoutRoomForACopyKeepsTheFileAndStoresAllTheSame) {
  constexpr int kNoMount = 77;
  ASSERT_EQ(::mkdir(directory().c_str(), 0700), 0);
  const int status = child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("kiln", directory().c_str(), "tmpfs", 0, "size=11m") != 0)
      return kNoMount;
    if (fill() != 0) return 1;
    const auto store = open_capped(7 * kCapMiB);
    for (std::uint32_t number = 1000; number < 1020; ++number) {
      const PutResult got = store->put(record_of(number, kSize));
      if (got.put != Put::stored) std::fprintf(stderr, "%s\n", got.detail.c_str());
      if (got.put != Put::stored || !holds(*store, number, kSize)) return 2;
    }
    return store->stats().live_bytes <= 7 * kCapMiB / 10 * 9 && store->verify().damaged.empty() ? 0 : 3;
  });
  if (status == kNoMount) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  EXPECT_EQ(status, 0);
}

TEST_F(CapTest, DamageUnderALoweredCapIsSaidAndSetAside) {
  ASSERT_EQ(fill(), 0);
  std::string bytes = base::read_file(data_file())->bytes;
  std::size_t damaged = 0;
  for (std::size_t page = 2 * 4096; page < bytes.size() && damaged < 2; page += 4096) {
    const bool is_leaf = bytes[page + 10] == 2 && bytes[page + 11] == 0;
    if (is_leaf && ++damaged) bytes.replace(page + 16, 64, 64, '\xee');
  }
  ASSERT_EQ(damaged, 2u);
  base::write_file(data_file(), bytes, 0600);
  const auto store = open_capped(5 * kCapMiB);
  const PutResult got = store->put(record_of(1000, kSize));
  ASSERT_EQ(got.put, Put::stored) << got.detail;
  EXPECT_NE(got.notice.find("data.mdb.damaged"), std::string::npos) << got.notice;
  EXPECT_LE(file_bytes(), 5 * kCapMiB);
  for (std::uint32_t number = 1001; number < 1040; ++number)
    ASSERT_EQ(store->put(record_of(number, kSize)).put, Put::stored);
  EXPECT_EQ(::access((data_file() + ".damaged").c_str(), F_OK), 0) << "stays until gc";
}

TEST_F(CapTest, DirectoryThatMayNotBeWrittenKeepsTheFileAndStoresAllTheSame) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kUser = 65534;
  ASSERT_EQ(fill(), 0);
  const std::string place = directory() + "/v1";
  for (const std::string& path : {dir_.path(), directory(), place, data_file()})
    ASSERT_EQ(::chown(path.c_str(), kUser, kUser), 0);
  ASSERT_EQ(::chmod(place.c_str(), 0500), 0);
  EXPECT_EQ(child([&] {
              if (::setresuid(kUser, kUser, kUser) != 0) return 9;
              const auto store = open_capped(5 * kCapMiB);
              for (std::uint32_t number = 1000; number < 1040; ++number) {
                const PutResult got = store->put(record_of(number, kSize));
                if (got.put != Put::stored) std::fprintf(stderr, "%s\n", got.detail.c_str());
                if (got.put != Put::stored || !holds(*store, number, kSize)) return 1;
              }
              return store->stats().live_bytes <= 5 * kCapMiB / 10 * 9 ? 0 : 2;
            }),
            0);
  ASSERT_EQ(::chmod(place.c_str(), 0700), 0);
}

TEST_F(CapTest, PutThatCannotHaveTheGateSaysSo) {
  ASSERT_EQ(fill(), 0);
  put_wait_ = 50ms;
  const auto store = open_capped(5 * kCapMiB);
  FdPool writers(data_file(), O_RDWR | O_CLOEXEC);
  const auto fd = writers.lease();
  const auto writer = WriterPass::enter(fd.get(), soon());
  ASSERT_TRUE(writer);
  const PutResult got = store->put(record_of(1000, kSize));
  EXPECT_EQ(got.put, Put::gate_timeout);
  EXPECT_NE(got.detail.find("lslocks"), std::string::npos) << got.detail;
}

}  // namespace
}  // namespace kiln::cache::test
