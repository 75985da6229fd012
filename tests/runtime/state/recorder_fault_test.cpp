// A record stays a valid plan after any fault of its writers, its disk or its lock.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/fd.hpp"
#include "cache/lock/gate.hpp"
#include "runtime/state/recorder_fixture.hpp"
#include "support/time_limit.hpp"

namespace kiln::testing {
namespace {

using namespace std::chrono_literals;

TEST_F(RecorderTest, ATornEndIsHealedByTheNextWriterWhereverItWasTorn) {
  {
    Recorder recorder(file_);
    record(recorder, 1), record(recorder, 2);
  }
  const std::string whole = text();
  const std::size_t first = whole.find("\n# end\n") + 7;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    base::write_file(file_, whole.substr(0, size));
    Recorder recorder(file_);
    record(recorder, 3);
    source::PlanNotes notes;
    const Rows expected = size < first ? Rows{3} : size < whole.size() ? Rows{1, 3} : Rows{1, 2, 3};
    ASSERT_EQ(rows(&notes), expected) << size;
    // A rest that ends with a whole line may be a user's own text: it stays, and is ignored.
    const bool cut_in_a_line = size == 0 || whole[size - 1] != '\n';
    EXPECT_TRUE(notes.ignored.empty() || !cut_in_a_line) << size;
  }
  for (const std::size_t size : {std::size_t{1}, std::size_t{8}, first - 20, first + 5, whole.size() - 30}) {
    std::string torn = whole.substr(0, size) + std::string(4096, '\0');  // the size was stored first
    base::write_file(file_, torn);
    Recorder recorder(file_);
    record(recorder, 3);
    source::PlanNotes notes;
    EXPECT_EQ(rows(&notes), size < first ? Rows{3} : (Rows{1, 3})) << size;
    EXPECT_TRUE(notes.ignored.empty()) << size;
  }
}

TEST_F(RecorderTest, KilledWritersLeaveAPlan) {
  for (int round = 0; round < 60; ++round) {
    const pid_t pid = start_child([&] {
      Recorder recorder(file_);
      for (int n = 1 + round * 5; n <= 1000; ++n) record(recorder, n);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(300 + 37 * round));
    ::kill(pid, SIGKILL);
    finish(pid);
    EXPECT_NO_THROW(source::parse_plan(text(), file_)) << round;
  }
  {
    Recorder recorder(file_);
    for (int n = 1; n <= 1000; ++n) record(recorder, n);
  }
  source::PlanNotes notes;
  Rows got = rows(&notes);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got.size(), 1000u);
  EXPECT_EQ(notes.repeats, 0u);
}

TEST_F(RecorderTest, AFullDiskTakesARowBackAndTheNextWriteBringsIt) {
  EXPECT_EQ(in_child([&] {
              Recorder recorder(file_);
              record(recorder, 1);
              const std::string before = text();
              const rlimit tight{before.size() + 10, RLIM_INFINITY}, wide{RLIM_INFINITY, RLIM_INFINITY};
              if (::setrlimit(RLIMIT_FSIZE, &tight) != 0) ::_exit(2);
              record(recorder, 2), record(recorder, 3);
              if (text() != before) ::_exit(3);
              if (warnings() != 1) ::_exit(4);
              ::setrlimit(RLIMIT_FSIZE, &wide);
              record(recorder, 4);
              if (rows() != Rows{1, 2, 3, 4}) ::_exit(5);
            }),
            0);
}

TEST_F(RecorderTest, WhatIsNoTraceIsLeftAsItIsWithOneWarning) {
  base::write_file(file_, "export PATH=/bin\n");
  Recorder recorder(file_);
  record(recorder, 1), record(recorder, 2);
  EXPECT_EQ(text(), "export PATH=/bin\n");
  ASSERT_EQ(warnings(), 1u);
  EXPECT_NE(lines_[0].find(file_), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[0].find("is no trace"), std::string::npos) << lines_[0];
}

TEST_F(RecorderTest, APlaceThatCannotBeWrittenIsOneWarning) {
  const std::string fifo = tree_.at("fifo"), directory = tree_.at("directory");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  const std::string full = tree_.at("full");  // a new name, as each path warns once in a process
  ASSERT_EQ(::symlink("/dev/full", full.c_str()), 0);
  std::size_t expected = 0;
  for (const std::string& place : {tree_.at("missing/record"), fifo, directory, full}) {
    Recorder recorder(place);
    for (int n = 1; n <= 3; ++n) record(recorder, n);
    EXPECT_EQ(warnings(), ++expected) << place;
    expected = warnings();
  }
}

TEST_F(RecorderTest, AStoppedLockHolderCostsOneDeadlineAndNoRow) {
  Recorder recorder(file_);
  record(recorder, 1);
  {
    const base::Fd held(::open(file_.c_str(), O_RDWR | O_CLOEXEC));
    const auto lock = cache::RangeLock::acquire(held.get(), std::int64_t{1} << 62,
                                                cache::RangeLock::Mode::exclusive, base::Deadline::after(1s));
    ASSERT_TRUE(lock);
    const auto start = base::Clock::now();
    for (int n = 2; n <= 100; ++n) record(recorder, n);
    EXPECT_LT(base::Clock::now() - start, at_most(10s));  // 99 deadlines would be 20 s
    EXPECT_EQ(rows(), (Rows{1}));
    EXPECT_EQ(warnings(), 1u);
  }
  record(recorder, 101);
  EXPECT_EQ(rows().size(), 101u);
}

TEST_F(RecorderTest, WhatWasPendingAtTheEndIsWrittenByTheDestructor) {
  {
    Recorder recorder(file_);
    record(recorder, 1);
    const base::Fd held(::open(file_.c_str(), O_RDWR | O_CLOEXEC));
    const auto lock = cache::RangeLock::acquire(held.get(), std::int64_t{1} << 62,
                                                cache::RangeLock::Mode::exclusive, base::Deadline::after(1s));
    record(recorder, 2);
  }
  EXPECT_EQ(rows(), (Rows{1, 2}));
}

TEST_F(RecorderTest, AForkedChildDoesNotInheritALockedMutex) {
  Recorder recorder(file_);
  record(recorder, 1);
  const base::Fd held(::open(file_.c_str(), O_RDWR | O_CLOEXEC));
  auto lock = cache::RangeLock::acquire(held.get(), std::int64_t{1} << 62, cache::RangeLock::Mode::exclusive,
                                        base::Deadline::after(1s));
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    waiting = true;
    record(recorder, 2);  // holds the recorder's mutex until the lock's deadline
  });
  while (!waiting) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  const pid_t pid = start_child([&] {
    record(recorder, 3);
    record(recorder, 1);
  });
  lock.reset();
  waiter.join();
  EXPECT_EQ(finish(pid), 0);
  record(recorder, 4);
  Rows got = rows();
  std::sort(got.begin(), got.end());
  EXPECT_TRUE(got == (Rows{1, 2, 4}) || got == (Rows{1, 2, 3, 4})) << ::testing::PrintToString(got);
}

TEST_F(RecorderTest, AMovedRecordIsBegunAnew) {
  Recorder recorder(file_);
  record(recorder, 1);
  ASSERT_EQ(::rename(file_.c_str(), tree_.at("old").c_str()), 0);
  record(recorder, 2);
  EXPECT_EQ(rows(), (Rows{2}));
  ASSERT_EQ(::truncate(file_.c_str(), 0), 0);
  record(recorder, 3);
  EXPECT_EQ(rows(), (Rows{3}));
}

}  // namespace
}  // namespace kiln::testing
