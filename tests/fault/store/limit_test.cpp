// Limits of the host: full filesystem, file size, address space, map. The store reports them and stays right.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "kiln/error.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

class Limit : public FaultFixture {
 protected:
  void limit(int resource, std::uint64_t bytes) const {
    const rlimit value{bytes, bytes};
    if (::setrlimit(static_cast<__rlimit_resource>(resource), &value) != 0) ::_exit(70);
  }
  static std::uint64_t address_space() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  std::uint64_t file_bytes() const {
    struct stat st {};
    return ::stat(data_file().c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
  }
  /// Puts numbers until a put is refused for lack of space. Returns the number of puts.
  std::uint32_t fill(Store& store, std::uint32_t from) const {
    for (std::uint32_t number = from; number < kMaxNumbers; ++number)
      if (put(store, number) == Put::full) return number + 1 - from;
    return kMaxNumbers - from;
  }
  void report_and_expect_nothing_lost(const char* fault) const {
    report(fault, {{"puts", promises_->puts},
                   {"refused", promises_->failed + promises_->full},
                   {"reads", promises_->reads},
                   {"lost", promises_->lost},
                   {"wrong", promises_->wrong}});
    EXPECT_EQ(promises_->lost, 0u);
    EXPECT_EQ(promises_->wrong, 0u);
  }
  /// Fills a file that may grow by `room` bytes. A write beyond the limit raises SIGXFSZ, which has
  /// `disposition`; a write across the limit is short and raises no signal.
  void exceed_the_file_size(const char* fault, void (*disposition)(int), std::uint64_t room) {
    {
      const auto store = open();
      put(*store, 0);
    }
    const int status = child([&] {
      ::signal(SIGXFSZ, disposition);
      const auto store = open();
      limit(RLIMIT_FSIZE, file_bytes() + room);
      for (std::uint32_t number = 1; number < 40; ++number) put(*store, number);
      check(*store);
      return 0;
    });
    EXPECT_EQ(status, 0) << (status == 128 + SIGXFSZ ? "killed by SIGXFSZ" : "");
    EXPECT_GT(promises_->puts, room > 2 * kImage ? 1u : 0u);
    EXPECT_GT(promises_->full, 0u);
    EXPECT_EQ(promises_->failed, 0u) << "lack of space is said to be that";
    EXPECT_EQ(check_afresh(), 0);
    const auto store = open();
    put(*store, 50);
    EXPECT_TRUE(promises_->acknowledged[50]) << "not usable without the limit";
    report_and_expect_nothing_lost(fault);
  }
};

TEST_F(Limit, AFullFilesystemRefusesPutsAndServesWhatItHas) {
  if (child([] { return ::unshare(CLONE_NEWNS) == 0 ? 0 : 1; }) != 0)
    GTEST_SKIP() << "mount namespaces are not permitted here";
  ASSERT_EQ(::mkdir(directory().c_str(), 0700), 0);
  const int status = child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("kiln", directory().c_str(), "tmpfs", 0, "size=2m") != 0)
      return 77;
    {
      const auto store = open();
      if (fill(*store, 0) == kMaxNumbers) return 3;
      for (std::uint32_t number = 100; number < 110; ++number) put(*store, number);  // filesystem is full
      check(*store);
    }
    if (check_afresh() != 0) return 4;
    if (::mount("kiln", directory().c_str(), "tmpfs", MS_REMOUNT, "size=8m") != 0) return 78;
    const auto store = open();
    if (put(*store, 200) != Put::stored) return 5;
    return check_afresh();
  });
  if (status == 77) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  EXPECT_EQ(status, 0);
  EXPECT_GT(promises_->puts, 10u);
  EXPECT_GT(promises_->full, 0u);
  report_and_expect_nothing_lost("disk full");
}

TEST_F(Limit, AFilesystemTooFullForAnEmptyStoreIsAnErrorThatLeavesNothing) {
  ASSERT_EQ(::mkdir(directory().c_str(), 0700), 0);
  const int status = child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("kiln", directory().c_str(), "tmpfs", 0, "size=4k") != 0)
      return 77;
    try {
      open();
      return 3;
    } catch (const Error& error) {
      if (std::string(error.what()).find(directory()) == std::string::npos) return 4;
    }
    if (::mount("kiln", directory().c_str(), "tmpfs", MS_REMOUNT, "size=8m") != 0) return 78;
    const auto store = open();
    if (put(*store, 0) != Put::stored) return 5;
    return check_afresh();
  });
  if (status == 77) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  EXPECT_EQ(status, 0);
}

TEST_F(Limit, AFileSizeLimitRefusesPuts) {
  exceed_the_file_size("file size limit, room for five records", SIG_DFL, 5 * kImage);
}

TEST_F(Limit, AFileSizeLimitAlreadyReachedDoesNotKillTheEngine) {
  exceed_the_file_size("file size limit, no room, SIGXFSZ at its default", SIG_DFL, 0);
}

TEST_F(Limit, AFileSizeLimitAlreadyReachedRefusesPutsWhereTheSignalIsIgnored) {
  exceed_the_file_size("file size limit, no room, SIGXFSZ ignored", SIG_IGN, 0);
}

TEST_F(Limit, AnAddressSpaceTooSmallForTheMapOpensWithASmallerOneOrSaysSo) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs the address space itself";
  {
    const auto store = open();
    for (std::uint32_t number = 0; number < 4; ++number) put(*store, number);
  }
  std::uint64_t opened = 0;
  for (const std::uint64_t megabytes : {1, 4, 16, 40, 80, 200, 900}) {
    const int status = child([&] {
      limit(RLIMIT_AS, address_space() + (megabytes << 20));
      StoreOptions large = options();
      large.cap_bytes = std::uint64_t{64} << 30;
      try {
        const auto store = Store::open(large);
        check(*store);
        put(*store, 10 + static_cast<std::uint32_t>(megabytes) % 50);
        check(*store);
        return 0;
      } catch (const Error& error) {
        return std::string(error.what()).find("ulimit -v") != std::string::npos ? 1 : 2;
      }
    });
    EXPECT_LT(status, 2) << megabytes << " MiB";
    if (status == 0) ++opened;
    EXPECT_EQ(check_afresh(), 0);
  }
  EXPECT_GE(opened, 2u);
  report_and_expect_nothing_lost("RLIMIT_AS");
}

TEST_F(Limit, NoAddressSpaceLeftOnceTheStoreIsOpenCostsNothingAcknowledged) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs the address space itself";
  const int status = child([&] {
    const auto store = open();
    put(*store, 0);
    limit(RLIMIT_AS, address_space());
    for (std::uint32_t number = 1; number < 20; ++number) {
      put(*store, number);
      check(*store);
    }
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(check_afresh(), 0);
  EXPECT_EQ(promises_->wrong, 0u);
}

}  // namespace
}  // namespace kiln::cache::test
