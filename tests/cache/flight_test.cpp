// The flight lock: one holder for each key of a host.
#include "cache/flight/flight.hpp"

#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "support/time_limit.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

class FlightTest : public ::testing::Test {
 protected:
  std::shared_ptr<FlightFile> file() const {
    return FlightFile::open({.store_identity = "7-42", .store_place = {}, .shared_memory = dir_.path()});
  }
  std::string path() const { return dir_.path() + "/kiln-" + std::to_string(::geteuid()) + "-7-42.flight"; }
  static base::Deadline in(std::chrono::milliseconds wait) { return base::Deadline::after(wait); }

  base::TempDir dir_{"kiln-flight-test-"};
};

TEST_F(FlightTest, FileIsPrivateEmptyAndNamedByUidAndStore) {
  const auto flights = file();
  EXPECT_EQ(flights->path(), path());
  struct stat st {};
  ASSERT_EQ(::stat(path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_EQ(st.st_size, 0);
}

TEST_F(FlightTest, FirstCallerGetsItWithoutWaiting) {
  const auto flights = file();
  const auto taken = flights->take(key_of(1), in(0ms));
  EXPECT_TRUE(taken.flight);
  EXPECT_FALSE(taken.waited);
}

TEST_F(FlightTest, TwoCallersOfOneProcessExcludeEachOther) {
  const auto flights = file();
  auto first = flights->take(key_of(1), in(0ms));
  const auto second = flights->take(key_of(1), in(50ms));
  EXPECT_FALSE(second.flight);
  EXPECT_TRUE(second.waited);
  EXPECT_TRUE(flights->take(key_of(2), in(0ms)).flight);
  first.flight.reset();
  EXPECT_TRUE(flights->take(key_of(1), in(0ms)).flight);
}

TEST_F(FlightTest, WaiterGetsItWhenTheHolderIsDone) {
  const auto flights = file();
  auto first = flights->take(key_of(1), in(0ms));
  std::thread holder([&] {
    std::this_thread::sleep_for(50ms);
    first.flight.reset();
  });
  const auto second = flights->take(key_of(1), in(5000ms));
  holder.join();
  EXPECT_TRUE(second.flight);
  EXPECT_TRUE(second.waited);
}

TEST_F(FlightTest, TwoProcessesExcludeEachOther) {
  const auto flights = file();
  const auto taken = flights->take(key_of(1), in(0ms));
  EXPECT_EQ(in_child([&] {
              const auto own = file();
              const auto mine = own->take(key_of(1), in(50ms));
              return !mine.flight && mine.waited && own->take(key_of(2), in(0ms)).flight ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_child([&] { return flights->take(key_of(1), in(50ms)).flight ? 1 : 0; }), 0);
}

TEST_F(FlightTest, OneAtATimeAmongManyThreadsAndProcesses) {
  std::vector<pid_t> children;
  const std::string counter = dir_.path() + "/inside";
  for (int i = 0; i < 4; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const auto flights = file();
      int bad = 0;
      for (int n = 0; n < 50; ++n) {
        const auto taken = flights->take(key_of(9), soon());
        // Under the lock mkdir always succeeds, as no other holder is inside.
        bad += !taken.flight || ::mkdir(counter.c_str(), 0700) != 0 || ::rmdir(counter.c_str()) != 0;
      }
      ::_exit(bad != 0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(FlightTest, KilledHolderFreesIt) {
  const auto flights = file();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto own = file();
    const auto taken = own->take(key_of(1), in(0ms));
    [[maybe_unused]] auto n = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(flights->take(key_of(1), in(20ms)).flight);
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(flights->take(key_of(1), in(2000ms)).flight);
  ::waitpid(pid, nullptr, 0);
}

TEST_F(FlightTest, StoppedHolderIsPassedByAtTheDeadline) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto own = file();
    const auto taken = own->take(key_of(1), in(0ms));
    [[maybe_unused]] auto n = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(pid, SIGSTOP);
  const auto flights = file();
  const auto start = base::Clock::now();
  EXPECT_FALSE(flights->take(key_of(1), in(100ms)).flight);
  const auto took = base::Clock::now() - start;
  EXPECT_GE(took, 100ms);
  EXPECT_LT(took, at_most(5s));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_F(FlightTest, DeletedFileIsNoticedAndMadeAgain) {
  const auto flights = file();
  { const auto idle = flights->take(key_of(1), in(0ms)); }  // leaves its descriptor in the pool
  ASSERT_EQ(::unlink(path().c_str()), 0);
  const auto mine = flights->take(key_of(1), in(0ms));
  ASSERT_TRUE(mine.flight);
  const auto newcomer = file();
  EXPECT_FALSE(newcomer->take(key_of(1), in(20ms)).flight);
}

TEST_F(FlightTest, PlantedSymlinkIsRefused) {
  base::write_file(dir_.path() + "/target", "precious");
  ASSERT_EQ(::symlink((dir_.path() + "/target").c_str(), path().c_str()), 0);
  try {
    file();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::io);
    EXPECT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
  }
}

TEST_F(FlightTest, PlantedDirectoryAndFifoAreRefused) {
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  EXPECT_THROW(file(), Error);
  ASSERT_EQ(::rmdir(path().c_str()), 0);
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THROW(file(), Error);
}

TEST_F(FlightTest, FileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can plant another user's file";
  base::write_file(path(), "");
  ASSERT_EQ(::chown(path().c_str(), 12345, 12345), 0);
  EXPECT_THROW(file(), Error);
}

TEST_F(FlightTest, MissingDirectoryIsAnError) {
  EXPECT_THROW(
      FlightFile::open({.store_identity = "1", .store_place = {}, .shared_memory = dir_.path() + "/none"}),
      Error);
}

TEST_F(FlightTest, FileThatBecomesUnusableIsAnErrorOfTake) {
  const auto flights = file();
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  EXPECT_THROW(flights->take(key_of(1), in(100ms)), Error);
}

TEST_F(FlightTest, WaiterSaysWhatItWaitsForAfterTwoSeconds) {
  const auto flights = file();
  const auto first = flights->take(key_of(1), in(0ms));
  std::string said;
  base::set_log_sink([&](base::Level, std::string_view line) { said += line; });
  EXPECT_FALSE(flights->take(key_of(1), in(300ms)).flight);
  EXPECT_EQ(said, "");
  EXPECT_FALSE(flights->take(key_of(1), in(2300ms)).flight);
  base::set_log_sink({});
  EXPECT_NE(said.find(path()), std::string::npos) << said;
  EXPECT_NE(said.find(key_of(1).hex()), std::string::npos) << said;
}

TEST_F(FlightTest, ChildDoesNotFreeWhatTheParentHolds) {
  const auto flights = file();
  auto taken = flights->take(key_of(1), in(0ms));
  EXPECT_EQ(in_child([&] {
              taken.flight.reset();
              return flights->take(key_of(1), in(20ms)).flight ? 1 : 0;
            }),
            0);
  EXPECT_FALSE(flights->take(key_of(1), in(20ms)).flight);
}

}  // namespace
}  // namespace kiln::cache::test
