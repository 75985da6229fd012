// Temporary files beside a store. A process that is killed while it writes one leaves
// it there, and the next writer removes it.
#include <csignal>
#include <filesystem>

#include "cache/store/file/fresh_file.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

class LeftoverTest : public StoreFixture {
 protected:
  /// Starts a process that stops in the middle of a gc, with its temporary file written.
  pid_t start_rewriting() const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(300);
      const FreshFile fresh(data_file());
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
    EXPECT_TRUE(WIFSTOPPED(status));
    return pid;
  }
  std::size_t temporary_files() const {
    std::size_t out = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory() + "/v1"))
      out += entry.path().filename().string().starts_with("data.mdb.new-");
    return out;
  }
  int put_elsewhere(std::uint32_t number) const {
    return child([&] { return open()->put(record_of(number)).put == Put::stored ? 0 : 1; });
  }
  static void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
  }
};

TEST_F(LeftoverTest, NextPutRemovesTheFileOfAKilledProcess) {
  ASSERT_EQ(put_elsewhere(1), 0);
  end(start_rewriting());
  ASSERT_EQ(temporary_files(), 1u);
  EXPECT_EQ(put_elsewhere(2), 0);
  EXPECT_EQ(temporary_files(), 0u);
}

TEST_F(LeftoverTest, FileOfALivingProcessStays) {
  ASSERT_EQ(put_elsewhere(1), 0);
  const pid_t owner = start_rewriting();
  EXPECT_EQ(put_elsewhere(2), 0);
  open()->gc(1 << 30, soon());
  EXPECT_EQ(temporary_files(), 1u);
  end(owner);
  open()->gc(1 << 30, soon());
  EXPECT_EQ(temporary_files(), 0u);
}

TEST_F(LeftoverTest, ForkedChildOfAKilledProcessDoesNotKeepItsFile) {
  ASSERT_EQ(put_elsewhere(1), 0);
  const Shared<std::atomic<pid_t>> grandchild;
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::alarm(300);
    const FreshFile fresh(data_file());
    if (::fork() == 0) {
      ::alarm(300);
      *grandchild = ::getpid();  // written after the fork handlers closed the descriptor here
    }
    for (;;) ::pause();
  }
  ASSERT_TRUE(base::poll_until(soon(), [&] { return grandchild->load() != 0; }));
  end(owner);
  EXPECT_EQ(put_elsewhere(2), 0);
  EXPECT_EQ(temporary_files(), 0u);
  ::kill(*grandchild, SIGKILL);
}

}  // namespace
}  // namespace kiln::cache::test
