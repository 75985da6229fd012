// /dev/shm as containers and administrators leave it: absent, read-only, full, private, or
// with another user's file under our name. The tests run as root in mount namespaces of
// their own, and skip with a message otherwise.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fd.hpp"
#include "kiln/error.hpp"
#include "tests/fault/flight/fake_path.hpp"

namespace kiln::fault {
namespace {

using End = cache::FlightFile::End;
constexpr int kCallers = 8;

/// Enters a mount namespace from which no mount reaches the host.
bool enter_namespace() {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}
bool mount_shm(const char* options = "", unsigned long flags = 0) {
  return ::mount("none", "/dev/shm", "tmpfs", flags, options) == 0;
}

class FlightPlaceTest : public FlightFixture {
 protected:
  void SetUp() override {
    FlightFixture::SetUp();
    if (cache::test::in_child([] { return enter_namespace() ? 0 : 1; }) != 0)
      GTEST_SKIP() << "mount namespaces are not permitted here";
  }
  static std::string name() { return "/dev/shm/kiln-" + std::to_string(::geteuid()) + "-s.flight"; }
  std::string beside() const { return directory() + "/v1/flight.lock"; }

  /// Prepares a /dev/shm in a new namespace; then eight processes ask
  /// for one key. Returns 0 when all is well.
  int asked_with(const std::function<bool()>& prepare, const std::string& expected_lock,
                 const std::function<bool()>& check = {}) {
    return cache::test::in_child([&] {
      if (!enter_namespace() || !prepare()) return 2;
      const Shared<FakeLog> log;
      const Shared<Barrier> barrier;
      const auto start = base::Clock::now();
      Children children;
      for (int i = 0; i < kCallers; ++i) {
        children.start([&] {
          const auto file = flights_in("/dev/shm");
          if (file->path() != expected_lock) return 1;
          FakePath path(open(), file, *log);
          path.compile_time = 50ms;
          path.patience = 10s;
          barrier->wait(kCallers);
          path.ask(1);
          return 0;
        });
      }
      for (const int status : children.wait())
        if (status != 0) return 3;
      if (ms_since(start) > 10'000) return 4;
      if (log->served != kCallers || log->wrong != 0) return 5;
      if (log->compiles != 1) return 6;
      return !check || check() ? 0 : 7;
    });
  }
};

TEST_F(FlightPlaceTest, AbsentFallsBesideTheStore) {
  EXPECT_EQ(asked_with([] { return ::mount("none", "/dev", "tmpfs", 0, "") == 0; }, beside()), 0);
}

TEST_F(FlightPlaceTest, ReadOnlyFallsBesideTheStore) {
  EXPECT_EQ(asked_with([] { return mount_shm("", MS_RDONLY); }, beside()), 0);
}

TEST_F(FlightPlaceTest, WithoutAnInodeLeftFallsBesideTheStore) {
  EXPECT_EQ(asked_with([] { return mount_shm("nr_inodes=1"); }, beside()), 0);
}

TEST_F(FlightPlaceTest, FullOfDataKeepsTheLockAndLosesTheBoardOnly) {
  const auto fill = [] {
    if (!mount_shm("size=64k")) return false;
    const base::Fd fd(::open("/dev/shm/fill", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string page(4096, 'x');
    while (::write(fd.get(), page.data(), page.size()) > 0) {
    }
    return true;
  };
  EXPECT_EQ(asked_with(fill, name()), 0);
}

TEST_F(FlightPlaceTest, AnothersFileIsLeftAlone) {
  struct stat before {};
  const auto plant = [&] {
    if (!mount_shm()) return false;
    base::write_file(name(), "somebody else's", 0644);
    return ::chown(name().c_str(), 12345, 12345) == 0 && ::stat(name().c_str(), &before) == 0;
  };
  const auto untouched = [&] {
    struct stat now {};
    return ::stat(name().c_str(), &now) == 0 && now.st_ino == before.st_ino && now.st_uid == 12345 &&
           now.st_ctim.tv_nsec == before.st_ctim.tv_nsec && now.st_mtim.tv_nsec == before.st_mtim.tv_nsec &&
           base::read_file(name())->bytes == "somebody else's";
  };
  EXPECT_EQ(asked_with(plant, beside(), untouched), 0);
}

TEST_F(FlightPlaceTest, ASymlinkAndItsTargetAreLeftAlone) {
  const auto plant = [&] {
    if (!mount_shm()) return false;
    base::write_file("/dev/shm/target", "precious");
    return ::symlink("/dev/shm/target", name().c_str()) == 0;
  };
  const auto untouched = [&] {
    struct stat now {};
    return ::lstat(name().c_str(), &now) == 0 && S_ISLNK(now.st_mode) &&
           base::read_file("/dev/shm/target")->bytes == "precious";
  };
  EXPECT_EQ(asked_with(plant, beside(), untouched), 0);
}

TEST_F(FlightPlaceTest, ADirectoryUnderOurNameIsLeftAlone) {
  EXPECT_EQ(asked_with([] { return mount_shm() && ::mkdir(name().c_str(), 0700) == 0; }, beside()), 0);
}

TEST_F(FlightPlaceTest, ContainersThatShareTheStoreAndNotSharedMemoryCompileOnce) {
  const Shared<FakeLog> log;
  const Shared<Barrier> barrier;
  Children children;
  for (int i = 0; i < kCallers; ++i) {
    children.start([&] {
      if (!enter_namespace() || !mount_shm()) return 2;
      FakePath path(open(), flights_in("/dev/shm"), *log);
      path.compile_time = 50ms;
      barrier->wait(kCallers);
      path.ask(1);
      return 0;
    });
  }
  for (const int status : children.wait()) EXPECT_EQ(status, 0);
  EXPECT_EQ(log->compiles, 1);
  EXPECT_EQ(log->served, kCallers);
  EXPECT_EQ(log->wrong, 0);
}

TEST_F(FlightPlaceTest, WithNoPlaceAtAllItIsAnErrorThatNamesBoth) {
  try {
    cache::FlightFile::open({.store_identity = "s",
                             .store_place = dir_.path() + "/no-store",
                             .shared_memory = dir_.path() + "/no-shm"});
    FAIL();
  } catch (const Error& error) {
    for (const char* part : {"no-store", "no-shm"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kiln::fault
