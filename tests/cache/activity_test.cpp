// The waiters that processes show, and a look from outside at compiling, waiting and lock-holding processes.
#include "cache/flight/activity.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <thread>

#include "cache/flight/compile_slots.hpp"
#include "cache/flight/paths.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

class ActivityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::mkdir(place().c_str(), 0700), 0);
    ASSERT_EQ(::mkdir(shm().c_str(), 0700), 0);
  }
  std::string place() const { return dir_.path() + "/v1"; }
  std::string shm() const { return dir_.path() + "/shm"; }
  std::string identity() const {
    struct stat st {};
    ::stat(place().c_str(), &st);
    return std::to_string(st.st_dev) + '-' + std::to_string(st.st_ino);
  }
  std::string stem() const { return flight_stem(shm(), ::geteuid(), identity()); }
  std::shared_ptr<FlightFile> file() const { return FlightFile::open({identity(), place(), shm()}); }
  Activity look() const { return look_at(place(), shm()); }
  static base::Deadline in(std::chrono::milliseconds wait) { return base::Deadline::after(wait); }
  /// Looks at the store's activity until `check` is true.
  template <class Check>
  bool comes_true(Check&& check) const {
    return base::poll_until(soon(), [&] { return check(look()); });
  }
  /// A child process that runs `body`, reports that it is ready, and stays until it is killed.
  class Child {
   public:
    explicit Child(const std::function<void()>& body) {
      int ready[2];
      EXPECT_EQ(::pipe(ready), 0);
      pid = ::fork();
      if (pid == 0) {
        const auto stay = [&] {
          [[maybe_unused]] const auto n = ::write(ready[1], "x", 1);
          for (;;) ::pause();
        };
        said_ = stay;
        body();
        stay();
      }
      char byte = 0;
      EXPECT_EQ(::read(ready[0], &byte, 1), 1);
      ::close(ready[0]), ::close(ready[1]);
    }
    ~Child() { end(); }
    void end() {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
      pid = -1;
    }
    /// Reports from inside `body` that the child is ready. Never returns.
    static void stay() { said_(); }
    pid_t pid = -1;

   private:
    static inline std::function<void()> said_;
  };
  /// A child process that compiles this key.
  Child compiling(std::uint32_t number) const {
    return Child([this, number] {
      const auto taken = file()->take(key_of(number), in(0ms));
      taken.flight->compiling("kernel " + std::to_string(number));
      Child::stay();
    });
  }

  base::TempDir dir_{"kiln-activity-test-"};
};

TEST_F(ActivityTest, APlaceWithoutFilesHasNoneAndGetsNone) {
  const Activity seen = look();
  EXPECT_TRUE(seen.compiling.empty() && seen.waiting.empty() && seen.finished.empty() && seen.slots.empty());
  EXPECT_TRUE(seen.unnamed.empty() && seen.unseen.empty() && seen.files.empty());
  EXPECT_FALSE(seen.writing);
  EXPECT_TRUE(look_at("", shm()).compiling.empty());
  EXPECT_TRUE(look_at(place(), "/nonexistent").compiling.empty());
  struct stat st {};
  EXPECT_NE(::stat((stem() + ".flight").c_str(), &st), 0);
  EXPECT_NE(::stat((stem() + ".board").c_str(), &st), 0);
  EXPECT_NE(::stat((place() + "/flight.lock").c_str(), &st), 0);
}

TEST_F(ActivityTest, ACompileIsSeenWithItsHolderAndEndsOnTheFinished) {
  const auto taken = file()->take(key_of(1), in(0ms));
  taken.flight->compiling("kernel 1");
  Activity seen = look();
  ASSERT_EQ(seen.compiling.size(), 1u);
  EXPECT_TRUE(seen.compiling[0].held);
  EXPECT_EQ(seen.compiling[0].entry.pid, ::getpid());
  EXPECT_EQ(seen.compiling[0].entry.subject, "kernel 1");
  EXPECT_TRUE(seen.compiling[0].entry.here());
  EXPECT_TRUE(seen.unnamed.empty());
  taken.flight->published();
  seen = look();
  EXPECT_TRUE(seen.compiling.empty());
  ASSERT_EQ(seen.finished.size(), 1u);
  EXPECT_EQ(seen.finished[0].state, FlightState::published);
}

TEST_F(ActivityTest, AKilledHolderIsNotHeldAndAStoppedOneIs) {
  Child holder = compiling(1);
  ASSERT_EQ(look().compiling.size(), 1u);
  ::kill(holder.pid, SIGSTOP);
  EXPECT_TRUE(look().compiling[0].held);
  holder.end();
  const Activity seen = look();
  ASSERT_EQ(seen.compiling.size(), 1u) << "nobody says how it ended";
  EXPECT_FALSE(seen.compiling[0].held);
}

TEST_F(ActivityTest, AWaiterIsSeenAfterAWhileAndGoneWhenItsWaitEnds) {
  Child holder = compiling(1);
  std::atomic<bool> cancelled{false};
  std::thread waiter([&] {
    const auto own = file();
    EXPECT_EQ(own->take(key_of(1), soon(), &cancelled, {}, "kernel 1").end, FlightFile::End::cancelled);
  });
  EXPECT_TRUE(comes_true([](const Activity& a) { return a.waiting.size() == 1; }));
  const Activity seen = look();
  ASSERT_EQ(seen.waiting.size(), 1u);
  EXPECT_EQ(seen.waiting[0].pid, ::getpid());
  EXPECT_EQ(seen.waiting[0].subject, "kernel 1");
  EXPECT_EQ(seen.waiting[0].key, key_of(1));
  EXPECT_EQ(seen.waiting[0].wait_for, WaitFor::flight);
  EXPECT_GE(seen.waiting[0].seconds_since_start(), 0.02);
  EXPECT_LT(seen.waiting[0].seconds_since_start(), 60);
  EXPECT_NEAR(static_cast<double>(seen.waiting[0].started_unix_ms) / 1000,
              static_cast<double>(::time(nullptr)), 60);
  cancelled = true;
  waiter.join();
  EXPECT_TRUE(look().waiting.empty());
}

TEST_F(ActivityTest, AKilledWaiterIsGoneAtOnceAndAStoppedOneIsThere) {
  Child holder = compiling(1);
  const pid_t waiter = ::fork();
  if (waiter == 0) {
    file()->take(key_of(1), soon());
    ::_exit(0);
  }
  EXPECT_TRUE(comes_true([](const Activity& a) { return a.waiting.size() == 1; }));
  ::kill(waiter, SIGSTOP);
  EXPECT_EQ(look().waiting.size(), 1u);
  ::kill(waiter, SIGKILL);
  ::waitpid(waiter, nullptr, 0);
  EXPECT_TRUE(look().waiting.empty());
}

TEST_F(ActivityTest, WhoGetsTheLockAtOnceWritesNothingOfItself) {
  const auto flights = file();
  EXPECT_TRUE(flights->take(key_of(1), in(0ms)).flight);
  struct stat st {};
  EXPECT_NE(::stat((stem() + ".board").c_str(), &st), 0) << "neither board nor waiters";
}

TEST_F(ActivityTest, AForkedChildOfAWaiterNeitherKeepsNorEndsIt) {
  Board board(stem() + ".board", birth_of(place()));
  Waiters waiters(board);
  file();  // look_at() needs a lock file
  auto shown = waiters.show(WaitFor::turn, {}, "kernel 1", boot_us() / 1000);
  ASSERT_TRUE(shown);
  EXPECT_EQ(in_child([&] { return shown.reset(), 0; }), 0);
  EXPECT_EQ(look().waiting.size(), 1u);
  Child child([] {});
  shown.reset();
  EXPECT_TRUE(look().waiting.empty());
}

TEST_F(ActivityTest, MoreWaitersThanPlacesAreNotAllShown) {
  Board board(stem() + ".board", birth_of(place()));
  Waiters waiters(board);
  std::vector<std::unique_ptr<ShownWaiter>> shown;
  for (int i = 0; i < 400; ++i)
    shown.push_back(waiters.show(WaitFor::turn, {}, "kernel " + std::to_string(i), boot_us() / 1000));
  const auto count = static_cast<std::size_t>(
      std::count_if(shown.begin(), shown.end(), [](const auto& s) { return s != nullptr; }));
  EXPECT_GT(count, 200u);
  EXPECT_LE(count, 256u);
  Board other(stem() + ".board", birth_of(place()));  // another process's view, with its own descriptors
  EXPECT_EQ(Waiters(other).read_all().size(), count);
  shown.clear();
  EXPECT_TRUE(Waiters(other).read_all().empty());
}

TEST_F(ActivityTest, EveryFlippedByteOfAWaiterIsNoInformation) {
  const std::string path = stem() + ".board";
  Board board(path, 1);
  const auto shown = Waiters(board).show(WaitFor::turn, {}, "subject", boot_us() / 1000);
  ASSERT_TRUE(shown);
  const std::string good = base::read_file(path)->bytes;
  const std::size_t start = good.find("KWAI");
  ASSERT_NE(start, std::string::npos);
  Board other(path, 1);
  ASSERT_EQ(Waiters(other).read_all().size(), 1u);
  const base::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  for (std::size_t at = start; at < good.size(); ++at) {
    const char bad = static_cast<char>(good[at] ^ 0x10);
    ASSERT_EQ(::pwrite(fd.get(), &bad, 1, static_cast<off_t>(at)), 1);
    EXPECT_TRUE(Waiters(other).read_all().empty()) << at - start;
    ASSERT_EQ(::pwrite(fd.get(), &good[at], 1, static_cast<off_t>(at)), 1);
  }
  EXPECT_EQ(Waiters(other).read_all().size(), 1u);
  Board foreign(path, 2);
  EXPECT_TRUE(Waiters(foreign).read_all().empty()) << "another store's";
}

TEST_F(ActivityTest, AFileSizeLimitCostsTheInformationAndNotTheProcess) {
  EXPECT_EQ(in_child([&] {
              const rlimit small{4096, 4096};
              ::setrlimit(RLIMIT_FSIZE, &small);
              Board board(stem() + ".board", 1);
              return Waiters(board).show(WaitFor::turn, {}, "x", 0) ? 1 : 0;
            }),
            0);
}

TEST_F(ActivityTest, SlotsInUseAndACallerThatWaitsAreSeen) {
  const auto flights = file();
  const auto one = SlotRequest(flights, SlotUse::caller, 1).try_take();
  EXPECT_EQ(look().slots, std::vector<int>{0});
  EXPECT_FALSE(look().caller_waits);
  const auto express = SlotRequest(file(), SlotUse::caller, 1).try_take();
  SlotRequest third(file(), SlotUse::caller, 1);
  EXPECT_FALSE(third.try_take());
  const Activity seen = look();
  EXPECT_EQ(seen.slots, (std::vector<int>{0, 1}));
  EXPECT_TRUE(seen.caller_waits);
  EXPECT_TRUE(seen.unnamed.empty()) << "slots are no keys";
}

TEST_F(ActivityTest, ALockWithoutAWordIsUnnamedOnceThoughItIsHeldInTwoFiles) {
  base::write_file(place() + "/data.mdb", "", 0600);
  auto taken = file()->take(key_of(1), in(0ms));
  ASSERT_TRUE(taken.flight->holds_data_file());
  Activity seen = look();
  ASSERT_EQ(seen.unnamed.size(), 1u);
  EXPECT_EQ(seen.unnamed[0].file, stem() + ".flight");
  EXPECT_EQ(seen.unnamed[0].offset, flight_offset(key_of(1)));
  taken.flight->compiling("kernel 1");
  EXPECT_TRUE(look().unnamed.empty());
}

TEST_F(ActivityTest, ALockOfAnotherContainerIsSeenInTheDataFile) {
  base::write_file(place() + "/data.mdb", "", 0600);
  const std::string theirs = dir_.path() + "/other-shm";
  ASSERT_EQ(::mkdir(theirs.c_str(), 0700), 0);
  const auto elsewhere = FlightFile::open({identity(), place(), theirs});
  const auto taken = elsewhere->take(key_of(1), in(0ms));
  taken.flight->compiling("kernel 1");
  const Activity seen = look();
  ASSERT_EQ(seen.unnamed.size(), 1u);
  EXPECT_EQ(seen.unnamed[0].file, place() + "/data.mdb");
}

TEST_F(ActivityTest, WithoutSharedMemoryTheFilesBesideTheStoreAreLookedAt) {
  const auto flights = FlightFile::open({identity(), place(), "/nonexistent"});
  const auto taken = flights->take(key_of(1), in(0ms));
  taken.flight->compiling("kernel 1");
  const Activity seen = look_at(place(), "/nonexistent");
  ASSERT_EQ(seen.compiling.size(), 1u);
  EXPECT_EQ(seen.files, std::vector<std::string>{place() + "/flight.lock"});
}

TEST_F(ActivityTest, TheGateOfWritersIsSeen) {
  base::write_file(place() + "/data.mdb", "", 0600);
  const base::Fd fd(::open((place() + "/data.mdb").c_str(), O_RDWR | O_CLOEXEC));
  auto lock = RangeLock::acquire(fd.get(), kGateOffset + 2, RangeLock::Mode::exclusive, soon());
  EXPECT_TRUE(look().writing);
  EXPECT_TRUE(look_at_gate(look().data_file));
  lock->release();
  EXPECT_FALSE(look().writing);
}

TEST_F(ActivityTest, WhatIsNotTheStoresOwnersIsSaidAndNotBelieved) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  file();
  ASSERT_EQ(::chown((stem() + ".flight").c_str(), 12345, 12345), 0);
  const Activity seen = look();
  ASSERT_EQ(seen.unseen.size(), 1u);
  EXPECT_EQ(seen.unseen[0], stem() + ".flight: belongs to uid 12345");
  EXPECT_TRUE(seen.files.empty());
}

}  // namespace
}  // namespace kiln::cache::test
