#include "base/log.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/child.hpp"

namespace kiln::base {
namespace {

using namespace std::chrono_literals;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { set_log(nullptr, nullptr, Level::warning); }
};

/// Threads that log until this object is destroyed.
class Loggers {
 public:
  explicit Loggers(int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        while (!stop_) {
          warn("a line");
          ++lines;
        }
      });
  }
  ~Loggers() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }
  std::atomic<long> lines{0};

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST_F(LogTest, GoesToTheSinkOnceByTopicAndRespectsTheLevel) {
  std::vector<std::string> lines;
  set_log_sink([&](Level, std::string_view line) { lines.emplace_back(line); });
  warn_once("base-test-topic", "first");
  warn_once("base-test-topic", "second");
  debug("quiet");
  warn("braces {} are text");
  set_log_sink(nullptr);
  EXPECT_EQ(lines, (std::vector<std::string>{"first", "braces {} are text"}));
}

TEST_F(LogTest, LinesGoToStandardErrorByDefault) {
  CaptureStderr();
  warn("one {}");
  log(Level::error, "two");
  info("below the level");
  EXPECT_EQ(GetCapturedStderr(), "kiln: warning: one {}\nkiln: error: two\n");
}

TEST_F(LogTest, AFunctionGetsTheLevelTheLineWithAZeroBehindItAndItsPointer) {
  struct Seen {
    int level = -1;
    std::string line;
    std::size_t zero_at = 0;
  } seen;
  set_log(
      [](int level, const char* message, std::size_t size, void* user) {
        *static_cast<Seen*>(user) = {level, {message, size}, std::char_traits<char>::length(message)};
      },
      &seen, Level::debug);
  debug(std::string_view("a part of a line").substr(2, 4));
  EXPECT_EQ(seen.level, static_cast<int>(Level::debug));
  EXPECT_EQ(seen.line, "part");
  EXPECT_EQ(seen.zero_at, 4u);
  log(Level::trace, "below the level that came with the function");
  EXPECT_EQ(seen.line, "part");
}

TEST_F(LogTest, NullRestoresStandardErrorWithTheLevel) {
  set_log([](int, const char*, std::size_t, void*) { ADD_FAILURE(); }, nullptr, Level::warning);
  set_log(nullptr, nullptr, Level::info);
  CaptureStderr();
  info("here");
  debug("not here");
  EXPECT_EQ(GetCapturedStderr(), "kiln: info: here\n");
}

TEST_F(LogTest, AFormerSinkIsNotCalledOnceTheNextIsSet) {
  struct Alive {
    std::atomic<bool> alive{true};
    std::atomic<long> calls{0}, late{0};
  };
  std::vector<std::unique_ptr<Alive>> users;  // kept alive, so that a late call is counted and does not crash
  const auto sink = [](int, const char*, std::size_t, void* user) {
    auto* const mine = static_cast<Alive*>(user);
    std::this_thread::yield();
    ++(mine->alive ? mine->calls : mine->late);
  };
  {
    const Loggers loggers(3);
    for (int i = 0; i < 300; ++i) {
      users.push_back(std::make_unique<Alive>());
      set_log(sink, users.back().get(), Level::warning);
      if (i > 0) users[users.size() - 2]->alive = false;
      while (users.back()->calls == 0) std::this_thread::yield();
    }
    set_log(nullptr, nullptr, Level::off);
    users.back()->alive = false;
  }
  long late = 0;
  for (const auto& user : users) late += user->late;
  EXPECT_EQ(late, 0);
}

TEST_F(LogTest, TheSetterWaitsForARunningCall) {
  std::atomic<bool> entered{false}, leave{false}, replaced{false};
  set_log_sink([&](Level, std::string_view) {
    entered = true;
    while (!leave) std::this_thread::yield();
  });
  std::thread logger([] { warn("a line"); });
  while (!entered) std::this_thread::yield();
  std::thread setter([&] {
    set_log(nullptr, nullptr, Level::warning);
    replaced = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(replaced);
  leave = true;
  logger.join();
  setter.join();
  EXPECT_TRUE(replaced);
}

/// Both threads are in the first sink at once, and both replace the sink.
TEST_F(LogTest, SinksThatSetTheNextSinkDoNotWaitForEachOther) {
  static std::atomic<int> inside, calls;
  static const LogFunction kLast = [](int, const char*, std::size_t, void*) { ++calls; };
  for (int round = 0; round < 100; ++round) {
    inside = 0, calls = 0;
    set_log(
        [](int, const char*, std::size_t, void*) {
          ++inside;
          while (inside < 2) std::this_thread::yield();
          set_log(kLast, nullptr, Level::warning);
        },
        nullptr, Level::warning);
    std::thread one([] { warn("one"); }), two([] { warn("two"); });
    one.join();
    two.join();
    EXPECT_EQ(calls, 0);
    warn("three");
    EXPECT_EQ(calls, 1);
  }
}

TEST_F(LogTest, WhatIsLoggedInsideASinkGoesToStandardError) {
  int calls = 0;
  set_log_sink([&](Level, std::string_view line) {
    ++calls;
    warn("inside " + std::string(line));
  });
  CaptureStderr();
  warn("outside");
  EXPECT_EQ(GetCapturedStderr(), "kiln: warning: inside outside\n");
  EXPECT_EQ(calls, 1);
}

TEST_F(LogTest, WhatASinkThrowsIsSwallowed) {
  int calls = 0;
  set_log_sink([&](Level, std::string_view) {
    if (++calls == 1) throw std::runtime_error("from a sink");
  });
  warn("one");
  warn("two");
  EXPECT_EQ(calls, 2) << "and it stays set";
}

TEST_F(LogTest, AFunctionIsEndedOutsideTheLogsOwnLocks) {
  struct LogsAtItsEnd {
    ~LogsAtItsEnd() { warn("gone"); }
  };
  auto held = std::make_shared<LogsAtItsEnd>();
  set_log_sink([held](Level, std::string_view) { set_log(nullptr, nullptr, Level::warning); });
  held.reset();
  CaptureStderr();
  warn("ends its own sink");
  EXPECT_EQ(GetCapturedStderr(), "kiln: warning: gone\n");
}

TEST_F(LogTest, AChildForkedWhileOthersLogHasALogOfItsOwn) {
  if (testing::cannot_fork_busy()) GTEST_SKIP() << testing::cannot_fork_busy();
  std::atomic<long> calls{0};
  static constexpr int kForks = 200;
  set_log_sink([&](Level, std::string_view) { ++calls; });  // its mutex is often locked at a fork, too
  const Loggers loggers(3);
  while (calls == 0) std::this_thread::yield();
  for (int i = 0; i < kForks; ++i) {
    const int child = testing::in_child([&] {
      std::freopen("/dev/null", "w", stderr);
      const long before = calls;
      warn("to the child's standard error");
      warn_once("log-test-fork", "once");
      if (calls != before) return 1;
      int own = 0;
      set_log_sink([&](Level, std::string_view) { ++own; });
      warn("to the child's own sink");
      set_log(nullptr, nullptr, Level::warning);
      return own == 1 ? 0 : 2;
    });
    ASSERT_EQ(child, 0) << "fork " << i;
  }
  const long before = calls;
  while (calls == before) std::this_thread::yield();  // the parent still logs
}

TEST_F(LogTest, AForkInsideASinkEndsWell) {
  int child = -1;
  set_log_sink([&](Level, std::string_view) {
    child = testing::in_child([] {
      std::freopen("/dev/null", "w", stderr);
      warn("in the child, inside its parent's sink");
      set_log_sink([](Level, std::string_view) {});
      warn("still inside");
      return 7;
    });
  });
  warn("fork");
  EXPECT_EQ(child, 7);
  pid_t pid = -1;
  set_log_sink([&](Level, std::string_view) { pid = ::fork(); });
  warn("fork and return from the sink in both");
  if (pid == 0) {
    ::alarm(testing::kStuckSeconds);
    int own = 0;
    set_log_sink([&](Level, std::string_view) { ++own; });
    warn("outside");
    ::_exit(own == 1 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kiln::base
