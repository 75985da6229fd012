// The gate. Its OFD locks belong to open file descriptions, so one process is enough for these tests.
#include "cache/lock/gate.hpp"
#include "cache/lock/fd_pool.hpp"

#include <fcntl.h>

#include <thread>

#include "kiln/error.hpp"
#include "support/time_limit.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

class GateTest : public ::testing::Test {
 protected:
  GateTest() : pool_(dir_.path() + "/file", O_RDWR | O_CREAT) {}
  static base::Deadline in(std::chrono::milliseconds wait) { return base::Deadline::after(wait); }

  base::TempDir dir_{"kiln-gate-test-"};
  FdPool pool_;
};

TEST_F(GateTest, ReadersShareIt) {
  auto a = pool_.lease(), b = pool_.lease();
  const auto first = enter_reader(a.get(), in(0ms)), second = enter_reader(b.get(), in(0ms));
  EXPECT_TRUE(first && second);
}

TEST_F(GateTest, WritersExcludeEachOtherUntilTheyLeave) {
  auto a = pool_.lease(), b = pool_.lease();
  {
    const auto first = WriterPass::enter(a.get(), in(0ms));
    ASSERT_TRUE(first);
    EXPECT_FALSE(WriterPass::enter(b.get(), in(10ms)));
  }
  EXPECT_TRUE(WriterPass::enter(b.get(), in(0ms)));
}

TEST_F(GateTest, WriterKeepsReadersOutOnlyWhileDrained) {
  auto a = pool_.lease(), b = pool_.lease();
  auto writer = WriterPass::enter(a.get(), in(0ms));
  ASSERT_TRUE(writer);
  {
    const auto drained = writer->drain(in(0ms));
    ASSERT_TRUE(drained);
    EXPECT_FALSE(enter_reader(b.get(), in(10ms)));
  }
  EXPECT_TRUE(enter_reader(b.get(), in(0ms)));
}

TEST_F(GateTest, DrainEndsAtItsDeadlineWhenAReaderStays) {
  auto a = pool_.lease(), b = pool_.lease();
  const auto reader = enter_reader(b.get(), in(0ms));
  auto writer = WriterPass::enter(a.get(), in(0ms));
  const auto start = base::Clock::now();
  EXPECT_FALSE(writer->drain(in(150ms)));
  const auto took = base::Clock::now() - start;
  EXPECT_GE(took, 150ms);
  EXPECT_LT(took, at_most(5s));
}

TEST_F(GateTest, NewReadersEnterWhileAWriterWaitsForAStoppedOne) {
  auto a = pool_.lease(), b = pool_.lease();
  const auto stopped = enter_reader(b.get(), in(0ms));
  ASSERT_TRUE(stopped);
  std::thread writing([&] {
    auto writer = WriterPass::enter(a.get(), in(0ms));
    EXPECT_FALSE(writer->drain(in(1000ms)));
  });
  int entered = 0, late = 0;
  for (const auto until = base::Deadline::after(800ms); !until.passed();) {
    auto c = pool_.lease();
    const auto start = base::Clock::now();
    entered += enter_reader(c.get(), in(500ms)).has_value();
    late += base::Clock::now() - start > 80ms;  // a writer stops readers for 20 ms of each 100 ms
    std::this_thread::sleep_for(200us);
  }
  writing.join();
  EXPECT_GT(entered, 100);
  EXPECT_LE(late * 100, entered) << "a moment without a core may come, but not often";
}

TEST_F(GateTest, WriterGetsInBetweenReadersThatOverlap) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 16; ++i)
    readers.emplace_back([&] {
      while (!stop) {
        auto fd = pool_.lease();
        const auto lock = enter_reader(fd.get(), soon());
        std::this_thread::sleep_for(1ms);
      }
    });
  std::this_thread::sleep_for(20ms);
  int drained = 0;
  for (int i = 0; i < 20; ++i) {
    auto fd = pool_.lease();
    auto writer = WriterPass::enter(fd.get(), in(500ms));
    drained += writer && writer->drain(in(500ms));
  }
  stop = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(drained, 20);
}

TEST_F(GateTest, LockOnReadOnlyDescriptorIsSharedOnly) {
  { pool_.lease(); }
  FdPool reading(dir_.path() + "/file", O_RDONLY);
  auto fd = reading.lease();
  EXPECT_TRUE(enter_reader(fd.get(), in(0ms)));
  EXPECT_THROW(WriterPass::enter(fd.get(), in(0ms)), Error);
}

TEST_F(GateTest, DescriptorWithoutLocksIsAnErrorThatNamesTheRemedy) {
  try {
    RangeLock::acquire(-1, 0, RangeLock::Mode::shared, in(1000ms));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::io);
  }
}

TEST_F(GateTest, MovedLockIsReleasedOnce) {
  auto a = pool_.lease(), b = pool_.lease();
  auto first = RangeLock::acquire(a.get(), 7, RangeLock::Mode::exclusive, in(0ms));
  RangeLock moved = std::move(*first);
  first.reset();
  EXPECT_FALSE(RangeLock::acquire(b.get(), 7, RangeLock::Mode::exclusive, in(0ms)));
  moved = RangeLock();
  EXPECT_TRUE(RangeLock::acquire(b.get(), 7, RangeLock::Mode::exclusive, in(0ms)));
}

TEST_F(GateTest, PoolLendsADescriptorToOneAtATimeAndReusesIt) {
  int number = -1;
  {
    auto a = pool_.lease(), b = pool_.lease();
    EXPECT_NE(a.get(), b.get());
    EXPECT_EQ(::fcntl(a.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    number = a.get();
  }
  auto first = pool_.lease(), second = pool_.lease();
  EXPECT_TRUE(first.get() == number || second.get() == number);
}

TEST_F(GateTest, ChildLeavesTheParentsLockAlone) {
  auto fd = pool_.lease();
  auto writer = WriterPass::enter(fd.get(), in(0ms));
  ASSERT_TRUE(writer);
  const int status = in_child([&] {
    writer.reset();  // as when a forked thread unwinds
    { FdPool::Lease inherited = std::move(fd); }
    auto own = pool_.lease();
    return WriterPass::enter(own.get(), in(0ms)) ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
  auto other = pool_.lease();
  EXPECT_FALSE(WriterPass::enter(other.get(), in(0ms)));
}

TEST_F(GateTest, LockOfADeadParentDoesNotLiveOnInItsChild) {
  int ready[2], report[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(report), 0);
  pid_t grandchild = 0;
  EXPECT_EQ(in_child([&] {
              auto fd = pool_.lease();
              auto writer = WriterPass::enter(fd.get(), in(0ms));
              const pid_t pid = ::fork();
              if (pid == 0) {
                ::close(report[0]);
                ::pause();
                ::_exit(0);
              }
              [[maybe_unused]] auto n = ::write(report[1], &pid, sizeof pid);
              ::kill(::getpid(), SIGKILL);
              return 0;
            }),
            128 + SIGKILL);
  ASSERT_EQ(::read(report[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  auto other = pool_.lease();
  EXPECT_TRUE(WriterPass::enter(other.get(), in(1000ms)));
  ::kill(grandchild, SIGKILL);
}

}  // namespace
}  // namespace kiln::cache::test
