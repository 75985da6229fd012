// Tests of the interposer itself: each action does what its rule says, and nothing else.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "fault.hpp"
#include "support/places.hpp"
#include "tests/fault/store/fixture.hpp"

namespace {

using kiln::base::Fd;

class Interposer : public ::testing::Test {
 protected:
  void TearDown() override { kiln_fault_arm(nullptr); }
  std::string path(const std::string& name) const { return dir_.path() + '/' + name; }
  Fd make(const std::string& name, int flags = 0) const {
    return Fd(::open(path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600));
  }
  static off_t size_of(const Fd& fd) { return ::lseek(fd.get(), 0, SEEK_END); }
  /// The signal that ends a child that arms `rules` and writes 8 bytes to `name`; 0 when it exits by itself.
  int signal_of(const std::string& rules, const std::string& name) const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      kiln_fault_arm(rules.c_str());
      const Fd fd = make(name);
      ::_exit(::pwrite(fd.get(), "12345678", 8, 0) == 8 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

  kiln::base::TempDir dir_{"kiln-fault-"};
};

TEST_F(Interposer, FailsTheNthCallOnTheNamedFileOnly) {
  const Fd a = make("a.mdb"), b = make("b.txt");
  kiln_fault_arm("pwrite@a.mdb:2:ENOSPC");
  EXPECT_EQ(::pwrite(a.get(), "x", 1, 0), 1);
  EXPECT_EQ(::pwrite(b.get(), "x", 1, 0), 1);
  errno = 0;
  EXPECT_EQ(::pwrite(a.get(), "x", 1, 1), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(::pwrite(a.get(), "x", 1, 0), 1);
  EXPECT_EQ(size_of(a), 1);
  EXPECT_EQ(kiln_fault_seen(), 3u);
  EXPECT_EQ(kiln_fault_fired(), 1u);
}

TEST_F(Interposer, FailsEveryCallFromTheNthOn) {
  const Fd a = make("a");
  kiln_fault_arm("fdatasync:2+:EIO");
  EXPECT_EQ(::fdatasync(a.get()), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(::fdatasync(a.get()), -1);
  EXPECT_EQ(errno, EIO);
  kiln_fault_arm(nullptr);
  EXPECT_EQ(::fdatasync(a.get()), 0);
}

TEST_F(Interposer, TellsDataFromMetaWritesByTheDescriptor) {
  const Fd data = make("a"), meta = make("a", O_DSYNC);
  kiln_fault_arm("meta:1+:EIO");
  EXPECT_EQ(::pwrite(data.get(), "x", 1, 0), 1);
  EXPECT_EQ(::pwrite(meta.get(), "x", 1, 0), -1);
  kiln_fault_arm("data:1+:EIO");
  EXPECT_EQ(::pwrite(data.get(), "x", 1, 0), -1);
  EXPECT_EQ(::pwrite(meta.get(), "x", 1, 0), 1);
}

TEST_F(Interposer, WritesHalfAndSaysSo) {
  const Fd a = make("a");
  kiln_fault_arm("writev:1:short");
  char text[] = "abcdefgh";
  const iovec buffers[] = {{text, 3}, {text + 3, 5}};
  EXPECT_EQ(::writev(a.get(), buffers, 2), 4);
  EXPECT_EQ(size_of(a), 4);
}

TEST_F(Interposer, DoesTheCallAndReportsAFailure) {
  const Fd a = make("a");
  kiln_fault_arm("pwrite:1:after=EIO");
  EXPECT_EQ(::pwrite(a.get(), "abcd", 4, 0), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(size_of(a), 4);
}

TEST_F(Interposer, KillsBeforeInTheMiddleAndAfter) {
  EXPECT_EQ(signal_of("pwrite:1:kill", "before"), SIGKILL);
  EXPECT_EQ(signal_of("pwrite:1:kill-half", "half"), SIGKILL);
  EXPECT_EQ(signal_of("pwrite:1:kill-after", "after"), SIGKILL);
  EXPECT_EQ(signal_of("pwrite:2:kill", "never"), 0);
  EXPECT_EQ(size_of(make("before")), 0);
  EXPECT_EQ(size_of(make("half")), 4);
  EXPECT_EQ(size_of(make("after")), 8);
}

TEST_F(Interposer, StopsAndDelays) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    kiln_fault_arm("fsync:1:stop");
    ::_exit(::fsync(make("a").get()));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  EXPECT_TRUE(WIFSTOPPED(status));
  ::kill(pid, SIGCONT);
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);

  const auto begin = std::chrono::steady_clock::now();
  kiln_fault_arm("sync:1:delay=30");
  EXPECT_EQ(::fsync(make("a").get()), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
}

TEST_F(Interposer, ReachesNamesLocksAndMaps) {
  struct flock lock {};
  lock.l_type = F_RDLCK;
  for (const char* rule :
       {"create@fresh:1:ENOSPC", "link@second:1:EIO", "rename@second:1:EIO", "unlink:1:EIO", "mkdir:1:EDQUOT",
        "lock:1:ENOMEM", "mmap@/a:1:ENOMEM", "ftruncate:1:EIO", "pread:1:EIO", "create@fresh:1:EMFILE"}) {
    // A sanitizer intercepts pread before this library does, and then calls the C library's.
    if (kiln::cache::test::kSanitized && std::string_view(rule).starts_with("pread")) continue;
    const Fd a = make("a");
    kiln_fault_arm(rule);
    char byte = 0;
    const bool failed[] = {!make("fresh"),
                           ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, a.get(), 0) == MAP_FAILED,
                           ::link(path("a").c_str(), path("second").c_str()) != 0,
                           ::rename(path("a").c_str(), path("second").c_str()) != 0,
                           ::unlink(path("second").c_str()) != 0,
                           ::mkdir(path("directory").c_str(), 0700) != 0,
                           ::fcntl(a.get(), F_OFD_SETLK, &lock) != 0,
                           ::ftruncate(a.get(), 4096) != 0,
                           ::pread(a.get(), &byte, 1, 0) < 0};
    EXPECT_EQ(kiln_fault_fired(), 1u) << rule;
    EXPECT_GE(std::count(std::begin(failed), std::end(failed), true), 1) << rule;
    kiln_fault_arm(nullptr);
    for (const char* name : {"fresh", "second"}) ::unlink(path(name).c_str());
    ::rmdir(path("directory").c_str());
  }
}

TEST_F(Interposer, StandsBeforeTheCommandToo) {
  const std::string command = "LD_PRELOAD=" + std::string(kiln::places::kBuildDirectory) +
                              "/tests/libkiln_fault.so FAULT_RULES=write:1:EIO " +
                              std::string("dd if=/dev/zero of=") + path("x") + " bs=1 count=1 2>/dev/null";
  EXPECT_NE(::system(command.c_str()), 0);
  EXPECT_EQ(size_of(make("x")), 0);
}

}  // namespace
