// Faults of the holder of a flight lock, and of the files under the lock. The deadline is
// kept; the worst result is a second compile.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "support/time_limit.hpp"
#include "tests/fault/flight/fake_path.hpp"

namespace kiln::fault {
namespace {

using End = cache::FlightFile::End;

class FlightHolderTest : public FlightFixture {
 protected:
  /// Starts a process that takes key 1 and holds it. `then` runs in that process with the flight.
  pid_t hold(const std::function<void(cache::Flight&)>& then = {}) {
    const int before = *holding_;
    const pid_t pid = children_.start([&] {
      const auto taken = flights()->take(key_of(1), in(0ms));
      if (!taken.flight) return 1;
      taken.flight->compiling("scale N=1");
      ++*holding_;
      if (then) then(*taken.flight);
      for (;;) ::pause();
    });
    EXPECT_TRUE(eventually([&] { return *holding_ > before; }));
    return pid;
  }

  Shared<std::atomic<int>> holding_;
  Children children_;
};

TEST_F(FlightHolderTest, StoppedHolderIsPassedByAtTheDeadlineAndHarmsNothingWhenItWakes) {
  const Shared<std::atomic<int>> woken;
  const pid_t pid = hold([&](cache::Flight& flight) {
    while (*woken == 0) std::this_thread::sleep_for(1ms);
    flight.unpublished();
    *woken = 2;
  });
  ::kill(pid, SIGSTOP);
  const Shared<FakeLog> log;
  FakePath path(open(), flights(), *log);
  path.patience = 300ms;
  const auto start = base::Clock::now();
  path.ask(1);
  EXPECT_GE(ms_since(start), 300);
  EXPECT_LT(ms_since(start), at_most(5000));
  EXPECT_EQ(log->timed_out, 1);
  EXPECT_EQ(log->compiles, 1);
  *woken = 1;
  ::kill(pid, SIGCONT);
  ASSERT_TRUE(eventually([&] { return *woken == 2; }));
  path.ask(1);
  EXPECT_EQ(log->compiles, 1) << "the private compile was published";
  EXPECT_EQ(log->served, 2);
  EXPECT_EQ(log->wrong, 0);
}

TEST_F(FlightHolderTest, AKilledHoldersForkedChildDoesNotKeepTheLock) {
  const Shared<std::atomic<pid_t>> child;
  const pid_t pid = hold([&](cache::Flight&) {
    const pid_t forked = ::fork();
    if (forked == 0) {
      *child = ::getpid();
      for (;;) ::pause();
    }
  });
  ASSERT_TRUE(eventually([&] { return *child != 0; }));
  ::kill(pid, SIGKILL);
  const auto start = base::Clock::now();
  const auto taken = flights()->take(key_of(1), in(10s));
  EXPECT_EQ(taken.end, End::taken);
  EXPECT_TRUE(taken.flight && taken.flight->holds_data_file());
  EXPECT_LT(ms_since(start), at_most(1000));
  EXPECT_EQ(::kill(*child, SIGKILL), 0) << "it lived all the time";
}

TEST_F(FlightHolderTest, TheNextCallerAfterAKillServesWithinItsOwnCompileTime) {
  const pid_t pid = hold();
  const Shared<FakeLog> log;
  std::thread killer([&] {
    std::this_thread::sleep_for(50ms);
    ::kill(pid, SIGKILL);
  });
  FakePath path(open(), flights(), *log);
  const auto start = base::Clock::now();
  path.ask(1);
  killer.join();
  EXPECT_LT(ms_since(start), at_most(50 + 5 + 1000));
  EXPECT_EQ(log->compiles, 1);
}

TEST_F(FlightHolderTest, ADeletedLockFileLeavesTheOneInTheDataFile) {
  hold();
  ASSERT_EQ(::unlink(lock_path().c_str()), 0);
  EXPECT_EQ(flights()->take(key_of(1), in(50ms)).end, End::timed_out);
  EXPECT_EQ(flights()->take(key_of(2), in(50ms)).end, End::taken);
}

TEST_F(FlightHolderTest, ADeletedBoardIsNoInformationAndNothingElse) {
  const pid_t pid = hold();
  ASSERT_EQ(::unlink(board_path().c_str()), 0);
  EXPECT_EQ(flights()->take(key_of(1), in(50ms)).end, End::timed_out);
  ::kill(pid, SIGKILL);
  EXPECT_EQ(flights()->take(key_of(1), in(10s)).end, End::taken);
}

TEST_F(FlightHolderTest, AReplacedDataFileIsLockedAnewAndItsOldOneIsLetGo) {
  const auto file = flights();
  auto first = file->take(key_of(1), in(0ms));
  ASSERT_TRUE(first.flight && first.flight->holds_data_file());
  std::filesystem::copy_file(data_file(), data_file() + ".new");
  std::filesystem::rename(data_file() + ".new", data_file());  // gc replaces the file in this way
  EXPECT_EQ(flights()->take(key_of(1), in(20ms)).end, End::timed_out) << "the other half still holds";
  first.flight.reset();
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(fd, gone).string();
    EXPECT_EQ(target.find("data.mdb (deleted)"), std::string::npos) << target;
  }
  const auto second = file->take(key_of(1), in(0ms));
  ASSERT_TRUE(second.flight && second.flight->holds_data_file());
  EXPECT_EQ(flights_in(dir_.path() + "/none")->take(key_of(1), in(20ms)).end, End::timed_out)
      << "and is of the new file";
}

TEST_F(FlightHolderTest, WithoutADataFileToWriteTheOtherHalfIsEnough) {
  ASSERT_EQ(::unlink(data_file().c_str()), 0);
  const auto taken = flights()->take(key_of(1), in(0ms));
  ASSERT_TRUE(taken.flight);
  EXPECT_FALSE(taken.flight->holds_data_file());
  EXPECT_EQ(flights()->take(key_of(1), in(20ms)).end, End::timed_out);
}

TEST_F(FlightHolderTest, AWaiterNamesWhoCompilesWhatSinceWhen) {
  const pid_t pid = hold();
  std::vector<std::string> lines;
  base::set_log_sink([&](base::Level, std::string_view line) { lines.emplace_back(line); });
  EXPECT_EQ(flights()->take(key_of(1), in(2500ms)).end, End::timed_out);
  base::set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  for (const std::string& part :
       {"pid " + std::to_string(pid), std::string("scale N=1 for 2 s"), key_of(1).hex(), lock_path()})
    EXPECT_NE(lines[0].find(part), std::string::npos) << part << " in " << lines[0];
}

TEST_F(FlightHolderTest, TheErrorGoesToThoseWhoWaitedAndToNobodyElse) {
  const Shared<std::atomic<int>> fail;
  hold([&](cache::Flight& flight) {
    while (*fail == 0) std::this_thread::sleep_for(1ms);
    flight.failed("the log");
    ++*fail;
  });
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    *fail = 1;
  });
  const auto waited = flights()->take(key_of(1), in(10s));
  later.join();
  EXPECT_EQ(waited.end, End::failed);
  EXPECT_EQ(waited.error, "the log");
  EXPECT_FALSE(waited.flight);
  ASSERT_TRUE(eventually([&] { return *fail == 2; }));
  // The holder still has the lock. A new caller has not waited for that flight, so it gets no error from it.
  EXPECT_EQ(flights()->take(key_of(1), in(50ms)).end, End::timed_out);
  children_.end();
  const auto free = flights()->take(key_of(1), in(0ms));
  EXPECT_EQ(free.end, End::taken);
  EXPECT_FALSE(free.waited);
}

TEST_F(FlightHolderTest, AWaitCanBeCancelled) {
  hold();
  std::atomic<bool> cancelled{false};
  std::thread other([&] {
    std::this_thread::sleep_for(20ms);
    cancelled = true;
  });
  const auto start = base::Clock::now();
  EXPECT_EQ(flights()->take(key_of(1), in(20s), &cancelled).end, End::cancelled);
  other.join();
  EXPECT_LT(ms_since(start), at_most(10'000));
}

TEST_F(FlightHolderTest, AFlightMayOutliveWhoeverOpenedTheFile) {
  auto file = flights();
  auto taken = file->take(key_of(1), in(0ms));
  file.reset();
  taken.flight->compiling("x");
  taken.flight->published();
  taken.flight.reset();
  EXPECT_EQ(flights()->take(key_of(1), in(0ms)).end, End::taken);
}

}  // namespace
}  // namespace kiln::fault
