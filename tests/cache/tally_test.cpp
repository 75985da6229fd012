// The store's lifetime counters: no count is lost, and a fault of their file harms only the counters.
#include "cache/store/tally.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <thread>

#include "support/other_user.hpp"
#include "support/time_limit.hpp"
#include "support/tree.hpp"

namespace kiln::testing {
namespace {

using cache::Tally;

class TallyTest : public ::testing::Test {
 protected:
  std::string file() const { return tree_.at("counters"); }
  Tree tree_;
  Tally tally_{tree_.path()};
};

TEST_F(TallyTest, AddsUpAcrossObjects) {
  EXPECT_EQ(tally_.read(), std::vector<std::uint64_t>(cache::kTallyValues)) << "no file yet";
  EXPECT_TRUE(tally_.add(std::array<std::uint64_t, 3>{1, 2, 3}));
  EXPECT_EQ(mode_of(file()), "0600");
  EXPECT_TRUE(Tally(tree_.path()).add(std::array<std::uint64_t, 4>{10, 0, 0, 7}));
  auto expected = std::vector<std::uint64_t>(cache::kTallyValues);
  expected[0] = 11, expected[1] = 2, expected[2] = 3, expected[3] = 7;
  EXPECT_EQ(tally_.read(), expected);
  EXPECT_FALSE(tally_.add(std::vector<std::uint64_t>(cache::kTallyValues + 1, 1)));
  EXPECT_EQ(tally_.read(), expected);
}

TEST_F(TallyTest, EightProcessesLoseNothing) {
  constexpr int processes = 8, adds = 1000;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int refused = 0;
      for (int done = 0; done < adds;) {
        if (tally_.add(std::array<std::uint64_t, 2>{1, static_cast<std::uint64_t>(p)}))
          ++done;
        else if (++refused > 100 * adds)
          ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(tally_.read()[0], processes * adds);
  EXPECT_EQ(tally_.read()[1], adds * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7));
}

TEST_F(TallyTest, ThreadsOfOneObjectLoseNothing) {
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> added{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) added += tally_.add(std::array<std::uint64_t, 1>{1});
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(added, 0u);
  EXPECT_EQ(tally_.read()[0], added);
}

TEST_F(TallyTest, KilledAddersLeaveWhatCanBeRead) {
  std::uint64_t last = 0;
  for (int round = 0; round < 50; ++round) {
    const pid_t pid = ::fork();
    if (pid == 0)
      for (;;) tally_.add(std::array<std::uint64_t, 1>{1});
    std::this_thread::sleep_for(std::chrono::milliseconds(2 + round % 5));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    const std::uint64_t now = tally_.read()[0];
    EXPECT_GE(now, last) << "restarted from zero in round " << round;
    last = now;
  }
  EXPECT_GT(last, 50u);
}

TEST_F(TallyTest, DamageRestartsFromZero) {
  const std::array<std::uint64_t, 2> one{1, 1};
  ASSERT_TRUE(tally_.add(one));
  const std::string good = base::read_file(file())->bytes;
  ASSERT_EQ(good.size(), 528u);
  std::vector<std::string> bad{"", "x", good.substr(0, 100), good.substr(0, 527), std::string(528, '\0')};
  for (std::size_t at = 0; at < good.size(); at += 13) {
    bad.push_back(good);
    bad.back()[at] = static_cast<char>(bad.back()[at] ^ 4);
  }
  for (const std::string& bytes : bad) {
    base::write_file(file(), bytes);
    EXPECT_EQ(tally_.read()[0], 0u);
    EXPECT_TRUE(tally_.add(one));
    EXPECT_EQ(tally_.read()[0], 1u);
    EXPECT_EQ(tally_.read()[2], 0u);
  }
}

TEST_F(TallyTest, WhatIsNoFileIsNotCounted) {
  const std::array<std::uint64_t, 1> one{1};
  EXPECT_FALSE(Tally(tree_.at("missing")).add(one));
  EXPECT_EQ(Tally(tree_.at("missing")).read()[0], 0u);
  tree_.write("target", "precious");
  ASSERT_EQ(::symlink(tree_.at("target").c_str(), file().c_str()), 0);
  EXPECT_FALSE(tally_.add(one));
  EXPECT_EQ(base::read_file(tree_.at("target"))->bytes, "precious");
  ::unlink(file().c_str());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_FALSE(tally_.add(one));
  EXPECT_EQ(tally_.read()[0], 0u);
  ::unlink(file().c_str());
  EXPECT_TRUE(tally_.add(one)) << "usable again";
}

TEST_F(TallyTest, AReadOnlyFileIsReadAndNotCountedIn) {
  KILN_NEEDS_ROOT();
  const std::array<std::uint64_t, 1> one{1};
  ASSERT_TRUE(tally_.add(one));
  ::chmod(tree_.path().c_str(), 0755);
  ::chmod(file().c_str(), 0644);
  EXPECT_EQ(as_user(kUser,
                    [&] {
                      return std::string(tally_.add(one) ? "added" : "refused") + ' ' +
                             std::to_string(tally_.read()[0]);
                    }),
            "refused 1");
  ::chmod(file().c_str(), 0600);
  EXPECT_EQ(as_user(kUser, [&] { return std::to_string(tally_.read()[0]); }), "0");
  EXPECT_EQ(tally_.read()[0], 1u);
}

TEST_F(TallyTest, AStoppedHolderCostsAtMostTheDeadline) {
  ASSERT_TRUE(tally_.add(std::array<std::uint64_t, 1>{1}));
  const base::Fd fd(::open(file().c_str(), O_RDWR | O_CLOEXEC));
  const auto held = cache::RangeLock::acquire(fd.get(), 0, cache::RangeLock::Mode::exclusive,
                                              base::Deadline::after(std::chrono::seconds(5)));
  ASSERT_TRUE(held);
  const auto start = base::Clock::now();
  EXPECT_FALSE(tally_.add(std::array<std::uint64_t, 1>{1}));
  EXPECT_EQ(tally_.read()[0], 1u) << "read without the lock";
  EXPECT_LT(base::Clock::now() - start, at_most(std::chrono::seconds(5)));
}

}  // namespace
}  // namespace kiln::testing
