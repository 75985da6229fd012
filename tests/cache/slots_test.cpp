// The host's compile slots. Processes share them, callers come first, and a killed holder's slot is not lost.
#include "cache/flight/compile_slots.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

class SlotsTest : public ::testing::Test {
 protected:
  /// Opens the file like another process, with new descriptors.
  std::shared_ptr<FlightFile> file() const {
    return FlightFile::open({.store_identity = "7-43", .store_place = {}, .shared_memory = dir_.path()});
  }
  std::shared_ptr<Slot> take(SlotUse use, int count) const {
    return SlotRequest(file(), use, count).try_take();
  }

  base::TempDir dir_{"kiln-slots-test-"};
};

TEST_F(SlotsTest, SoManyAreHeldAndNoMore) {
  std::vector<std::shared_ptr<Slot>> held;
  for (int i = 0; i < 4; ++i) held.push_back(take(SlotUse::ahead, 4));
  for (const auto& slot : held) EXPECT_TRUE(slot);
  EXPECT_FALSE(take(SlotUse::ahead, 4));
  held.pop_back();
  EXPECT_TRUE(take(SlotUse::ahead, 4));
}

TEST_F(SlotsTest, CallersHaveAQuarterMore) {
  std::vector<std::shared_ptr<Slot>> held;
  for (int i = 0; i < 8; ++i) held.push_back(take(SlotUse::ahead, 8));
  EXPECT_FALSE(take(SlotUse::ahead, 8));
  const auto one = take(SlotUse::caller, 8), two = take(SlotUse::caller, 8);
  EXPECT_TRUE(one && two);
  EXPECT_FALSE(take(SlotUse::caller, 8));
}

TEST_F(SlotsTest, WorkAheadOfNeedStandsBackWhileACallerWaits) {
  const auto regular = take(SlotUse::ahead, 1);
  auto express = take(SlotUse::caller, 1);
  ASSERT_TRUE(regular && express);
  {
    SlotRequest caller(file(), SlotUse::caller, 1);
    EXPECT_FALSE(caller.try_take());
    const auto other = take(SlotUse::ahead, 8);  // a process with more slots, which are free
    EXPECT_FALSE(other) << "a caller waits";
    express.reset();
    EXPECT_TRUE(caller.try_take());
    EXPECT_TRUE(take(SlotUse::ahead, 8)) << "and has what he waited for";
    const auto again = caller.try_take();
  }
  EXPECT_TRUE(take(SlotUse::ahead, 8)) << "the mark goes with its request";
}

TEST_F(SlotsTest, OneWithASmallQuotaFindsItsLowSlotsFree) {
  const auto high = take(SlotUse::ahead, 4);  // a process that may use four takes a high slot
  EXPECT_TRUE(take(SlotUse::ahead, 1));
}

TEST_F(SlotsTest, AKilledHolderGivesItBackAndItsChildDoesNotKeepIt) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto slot = take(SlotUse::ahead, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      ::sleep(20);
      ::_exit(0);
    }
    [[maybe_unused]] const ssize_t n = ::write(ready[1], &child, sizeof child);
    ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ready[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  EXPECT_FALSE(take(SlotUse::ahead, 1));
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  // The holder's child closes the inherited descriptors after its fork, at any time.
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(10)),
                               [&] { return static_cast<bool>(take(SlotUse::ahead, 1)); }));
  ::kill(child, SIGKILL);
  ::close(ready[0]), ::close(ready[1]);
}

TEST_F(SlotsTest, AReplacedFileIsTakenUpAgain) {
  auto file_in_use = file();
  SlotRequest request(file_in_use, SlotUse::ahead, 1);
  auto before = request.try_take();
  ASSERT_TRUE(before);
  ::unlink(file_in_use->path().c_str());
  EXPECT_TRUE(take(SlotUse::ahead, 1)) << "at worst one more compiles";
}

}  // namespace
}  // namespace kiln::cache::test
