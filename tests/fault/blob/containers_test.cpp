// Blobs of two containers that share a store: processes of other PID and IPC namespaces, with a /dev/shm of their
// own or without.
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "tests/fault/blob/fixture.hpp"

namespace kiln::runtime::test {
namespace {

enum class Shm { shared, own };

class BlobContainers : public BlobFault {
 protected:
  static constexpr int kNoNamespaces = 77;

  /// Starts `body` as process 1 of a container.
  pid_t container(Shm shm, const std::function<int()>& body) {
    long flags = SIGCHLD | CLONE_NEWPID | CLONE_NEWIPC;
    if (shm == Shm::own) flags |= CLONE_NEWNS;
    const auto pid = static_cast<pid_t>(::syscall(SYS_clone, flags, 0, 0, 0, 0));
    if (pid != 0) return pid;
    if (::getpid() != 1) ::_exit(98);
    if (shm == Shm::own && (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                            ::mount("kiln", "/dev/shm", "tmpfs", 0, "size=16m") != 0))
      ::_exit(kNoNamespaces);
    int status = 99;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "a container: %s\n", error.what());
    }
    ::_exit(status);
  }
  static int status_of(pid_t pid) {
    int status = 0;
    if (pid <= 0 || ::waitpid(pid, &status, 0) != pid) return kNoNamespaces;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int wait_for_it() {
    Service service(options());
    BlobSpace& space = space_of(service);
    talk_->waits = true;
    auto got = space.lease("k", soon());
    if (got.found) return *got.found == "made" ? 0 : 4;
    ++talk_->made;
    std::string why;
    space.put("k", "made", std::move(got.lease), why);
    return space.get("k") == "made" ? 0 : 5;
  }
  /// Starts a container that makes the blob, and one that waits for it. Skips the test where there are no namespaces.
  void start_maker_and_waiter() {
    { Service service(options()); }
    maker_ = container(Shm::shared, [&] { return make(); });
    if (maker_ < 0) GTEST_SKIP() << "no namespaces here";
    ASSERT_TRUE(fault::eventually([&] { return talk_->leased.load(); }));
    waiter_ = container(Shm::shared, [&] { return wait_for_it(); });
    ASSERT_TRUE(fault::eventually([&] { return talk_->waits.load(); }));
  }
  pid_t maker_ = -1, waiter_ = -1;
};

TEST_F(BlobContainers, WithASharedDevShmOneMakesABlobForBoth) {
  start_maker_and_waiter();
  if (IsSkipped() || HasFatalFailure()) return;
  talk_->go_on = true;
  EXPECT_EQ(status_of(maker_), 0);
  EXPECT_EQ(status_of(waiter_), 0);
  EXPECT_EQ(talk_->made, 1);
  EXPECT_EQ(found("k"), "made");
}

TEST_F(BlobContainers, AKilledContainersLeaseIsFree) {
  start_maker_and_waiter();
  if (IsSkipped() || HasFatalFailure()) return;
  ::kill(maker_, SIGKILL);
  EXPECT_EQ(status_of(maker_), 128 + SIGKILL);
  EXPECT_EQ(status_of(waiter_), 0);
  EXPECT_EQ(found("k"), "made");
}

TEST_F(BlobContainers, WithADevShmOfItsOwnEachMakesItAndNobodyHangs) {
  { Service service(options()); }
  talk_->go_on = true;
  const pid_t one = container(Shm::own, [&] { return make(); });
  if (one < 0) GTEST_SKIP() << "no namespaces here";
  const pid_t other = container(Shm::own, [&] { return wait_for_it(); });
  const int first = status_of(one), second = status_of(other);
  if (first == kNoNamespaces) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  EXPECT_TRUE(first == 0 || first == 1) << first << "; 1: the other one was there first";
  EXPECT_EQ(second, 0);
  EXPECT_GE(talk_->made, 1);
  EXPECT_EQ(found("k"), "made");
}

TEST_F(BlobContainers, ManyPutAndGetTheSameKeys) {
  { Service service(options()); }
  constexpr int kContainers = 4, kKeys = 12, kRounds = 40;
  const auto content_of = [](int key, int version) {
    return std::to_string(key) + ' ' + std::to_string(version) + ' ' +
           std::string(static_cast<std::size_t>(key * 700 + version * 31), 'x');
  };
  std::vector<pid_t> pids;
  for (int slot = 0; slot < kContainers; ++slot)
    pids.push_back(container(slot % 2 ? Shm::own : Shm::shared, [&, slot] {
      Service service(options());
      BlobSpace& space = space_of(service);
      for (int round = 0; round < kRounds; ++round)
        for (int key = 0; key < kKeys; ++key) {
          if ((key + round + slot) % 3 == 0) put(space, std::to_string(key), content_of(key, round));
          const auto got = space.get(std::to_string(key));
          if (!got) continue;
          const std::string text(got->view);
          const int version = std::atoi(text.c_str() + text.find(' ') + 1);
          if (text != content_of(key, version)) return 6;
        }
      return 0;
    }));
  if (pids.front() < 0) GTEST_SKIP() << "no namespaces here";
  for (const pid_t pid : pids) {
    const int status = status_of(pid);
    EXPECT_TRUE(status == 0 || status == kNoNamespaces) << status;
  }
}

}  // namespace
}  // namespace kiln::runtime::test
