// A filesystem without room for a second copy of a damaged file. Records that cannot be moved are dropped.
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "tests/fault/damage/heal_fixture.hpp"

namespace kiln::cache::test {
namespace {

class NoRoomForACopy : public HealFixture {
 protected:
  static constexpr int kNoMount = 77;
  static constexpr std::uint32_t kCount = 60;

  /// Runs `body` in a child with a tmpfs of 4 MiB, more than half full of records, under the store.
  int on_a_small_disk(const std::function<int()>& body) {
    if (::mkdir(directory().c_str(), 0700) != 0 && errno != EEXIST) return 98;
    return child([&] {
      if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("kiln", directory().c_str(), "tmpfs", 0, "size=4m") != 0)
        return kNoMount;
      const int filled = child([&] {
        const auto store = open();
        for (std::uint32_t number = 0; number < kCount; ++number)
          if (put(*store, number) != Put::stored) return 1;
        return 0;
      });
      return filled == 0 ? body() : 90;
    });
  }
  std::uint64_t free_bytes() const {
    struct statvfs fs {};
    return ::statvfs(directory().c_str(), &fs) == 0 ? fs.f_bavail * fs.f_frsize : 0;
  }
  /// Fills the filesystem until `bytes` bytes are free.
  bool leave(std::uint64_t bytes) const {
    const std::uint64_t now = free_bytes();
    if (now < bytes) return false;
    const base::Fd filler(::open((directory() + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    return ::posix_fallocate(filler.get(), 0, static_cast<off_t>(now - bytes)) == 0 &&
           free_bytes() == bytes / kPage * kPage;
  }
  /// Three processes put and read after the damage. Returns 0 when all of them succeed.
  int use() const {
    for (std::uint32_t number = 2000; number < 2003; ++number) {
      const int status = child([&] {
        const auto store = open();
        const PutResult got = store->put(record_of(number));
        if (got.put != Put::stored) std::fprintf(stderr, "%s\n", got.detail.c_str());
        return got.put == Put::stored && holds(*store, number) ? 0 : 1;
      });
      if (status != 0) return 4;
    }
    return child([&] { return open()->verify().damaged.empty() ? 0 : 1; }) == 0 ? 0 : 5;
  }
};

TEST_F(NoRoomForACopy, ADamagedFileWithoutRoomForACopyIsUsableAgain) {
  const int status = on_a_small_disk([&] {
    damage_leaves_of(20);
    if (!leave(std::uint64_t{1} << 20)) return 3;
    return use();
  });
  if (status == kNoMount) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  EXPECT_EQ(status, 0);
}

// One put must decide it, no matter if the copy fits: there is another file afterwards, and puts
// succeed as soon as there is room for them.
TEST_F(NoRoomForACopy, ADistrustedFileWithBarelyRoomForACopyIsReplacedByOnePut) {
  for (const std::uint64_t pages : {0, 1, 2, 3, 4, 8, 32}) {
    const int status = on_a_small_disk([&] {
      const std::uint64_t live = open()->stats().live_bytes;
      // The file is intact, so the copy is as large as the live bytes and a few pages.
      if (::chmod(data_file().c_str(), 0600 | S_ISVTX) != 0) return 2;
      if (::mount("kiln", directory().c_str(), "tmpfs", MS_REMOUNT, "size=8m") != 0) return kNoMount;
      if (!leave(live + pages * kPage)) return 3;
      const ino_t before = inode();
      return child([&] {
        const auto store = open();
        const PutResult got = store->put(record_of(2000));
        std::printf("%lu pages more: %s %s; %s\n", static_cast<unsigned long>(pages),
                    std::string(to_string(got.put)).c_str(), got.detail.c_str(), got.notice.c_str());
        std::fflush(stdout);
        if (inode() == before) return 4;
        if (::unlink((directory() + "/filler").c_str()) != 0) return 5;
        return store->put(record_of(2001)).put == Put::stored && holds(*store, 2001) ? 0 : 6;
      });
    });
    if (status == kNoMount) GTEST_SKIP() << "a tmpfs cannot be mounted here";
    EXPECT_EQ(status, 0) << "with " << pages << " pages more than live ones";
  }
}

TEST_F(NoRoomForACopy, AWholeFileWithoutRoomForACopyIsLeftAlone) {
  const int status = on_a_small_disk([&] {
    if (::chmod(data_file().c_str(), 0700) != 0 || !leave(std::uint64_t{1} << 20)) return 3;
    const ino_t before = inode();
    if (const int failed = use(); failed != 0) return failed;
    return inode() == before && check_afresh() == 0 ? 0 : 6;
  });
  if (status == kNoMount) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(promises_->lost + promises_->wrong, 0u);
}

}  // namespace
}  // namespace kiln::cache::test
