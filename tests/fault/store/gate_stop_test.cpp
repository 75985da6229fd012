// Waits at the gate. No writer starves among 64 readers. A process that is stopped at any of its lock calls
// delays others at most until their deadlines.
#include <fcntl.h>

#include <thread>

#include "cache/lock/fd_pool.hpp"
#include "cache/lock/gate.hpp"
#include "tests/fault/store/fixture.hpp"
#include "tests/fault/store/latencies.hpp"
#include "tests/support/time_limit.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

struct StopBoard {
  std::atomic<bool> stop;
  std::atomic<std::uint64_t> reads, late;
  Latencies entering;
};

class GateWaits : public StoreFixture {
 protected:
  void read_with_pauses(FdPool& pool) {
    while (!board_->stop) {
      {
        const auto fd = pool.lease();
        const auto lock = enter_reader(fd.get(), soon());
        ++(lock ? board_->reads : board_->late);
        std::this_thread::sleep_for(1ms);
      }
      std::this_thread::sleep_for(1ms);
    }
  }
  int read_in_threads(int count) {
    FdPool pool(data_file(), O_RDONLY);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([&] { read_with_pauses(pool); });
    for (auto& thread : threads) thread.join();
    return 0;
  }

  Shared<StopBoard> board_;
};

TEST_F(GateWaits, WriterDoesNotStarveAmongSixtyFourReaders) {
  const std::uint64_t entries = configured("KILN_SOAK_ENTRIES", 400);
  open();
  std::vector<pid_t> readers;
  for (int i = 0; i < 33; ++i) {  // 32 processes, and one whose 32 threads share descriptors
    readers.push_back(::fork());
    if (readers.back() == 0) ::_exit(read_in_threads(i == 0 ? 32 : 1));
  }
  std::this_thread::sleep_for(50ms);
  FdPool pool(data_file(), O_RDWR);
  std::uint64_t entered = 0;
  for (std::uint64_t i = 0; i < entries; ++i) {
    {
      const auto start = base::Clock::now();
      const auto fd = pool.lease();
      auto writer = WriterPass::enter(fd.get(), soon());
      const auto drained = writer ? writer->drain(soon()) : std::nullopt;
      board_->entering.add(base::Clock::now() - start);
      entered += drained.has_value();
    }
    std::this_thread::sleep_for(3ms);  // long enough for readers to come back
  }
  board_->stop = true;
  for (const pid_t pid : readers) ::waitpid(pid, nullptr, 0);
  report("a writer among 64 readers", {{"entries", entered},
                                       {"p50 us", board_->entering.all_but_one_in(2)},
                                       {"p99 us", board_->entering.all_but_one_in(100)},
                                       {"max us", board_->entering.longest_us()},
                                       {"reads", board_->reads},
                                       {"readers not let in", board_->late}});
  EXPECT_EQ(entered, entries);
  EXPECT_EQ(board_->late, 0u);
  EXPECT_GT(board_->reads, entries);
  EXPECT_LT(board_->entering.all_but_one_in(100), 1'000'000u);  // a plain lock would wait for ever
}

/// Another process, stopped before the nth lock or unlock call of its get or put.
class StoppedHolder : public StoreFixture {
 protected:
  enum class Does { get, put };
  static constexpr auto kWait = 150ms;

  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "under the thread sanitizer a child of a process with threads cannot start one";
#endif
    put_wait_ = 20s;
    store_ = open();
    ASSERT_EQ(store_->put(record_of(1, 30'000)).put, Put::stored);
    StoreOptions hasty = options();
    hasty.put_wait = kWait;
    hasty_ = Store::open(hasty);
  }

  /// Starts the process. Returns false when it ended without being stopped.
  bool start(const std::string& rule, Does does, std::uint32_t number) {
    pid_ = ::fork();
    if (pid_ == 0) {
      const auto own = open();
      kiln_fault_arm(rule.c_str());
      const bool done =
          does == Does::get ? holds(*own, 1, 30'000) : own->put(record_of(number, 30'000)).put == Put::stored;
      kiln_fault_arm(nullptr);
      ::_exit(done ? 0 : 1);
    }
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
    if (WIFSTOPPED(status)) return true;
    EXPECT_EQ(status, 0);
    return false;
  }

  /// Reads and puts beside the stopped process. Results must be right or a timeout,
  /// and never much later than the deadline.
  void look(std::uint32_t number) {
    const auto start = base::Clock::now();
    const Record expected = record_of(1, 30'000);
    const auto got = store_->get(key_of(1), expected.key_text, base::Deadline::after(kWait));
    longest_ = std::max(longest_, base::Clock::now() - start);
    if (got.record && !same(*got.record, expected)) ++wrong_;
    if (!got.record && got.miss != Miss::gate_timeout) ++wrong_;
    got.record ? ++reads_ : ++late_reads_;
    const auto begin = base::Clock::now();
    const Put put = hasty_->put(record_of(number, 30'000)).put;
    longest_ = std::max(longest_, base::Clock::now() - begin);
    if (put != Put::stored && put != Put::gate_timeout) ++wrong_;
    put == Put::stored ? ++puts_ : ++late_puts_;
  }

  void end(int signal) {
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    EXPECT_EQ(status, signal == SIGKILL ? SIGKILL : 0);
  }

  void step_through(Does does, const char* fault) {
    std::uint64_t stops = 0;
    for (const int signal : {SIGCONT, SIGKILL})
      for (const std::string call : {"lock", "unlock"})
        for (int step = 1; step < 40; ++step) {
          const std::uint32_t number = next_ += 2;
          if (!start(call + "@data.mdb:" + std::to_string(step) + ":stop", does, number)) break;
          ++stops;
          look(number + 1);
          end(signal);
          const bool finished = does == Does::put && signal == SIGCONT;
          EXPECT_TRUE(!finished || holds(*store_, number, 30'000)) << call << ' ' << step;
          EXPECT_TRUE(holds(*store_, 1, 30'000));
          const std::uint32_t later = next_ += 2;
          EXPECT_EQ(store_->put(record_of(later, 30'000)).put, Put::stored);
        }
    report(fault, {{"stops", stops},
                   {"reads beside it", reads_},
                   {"late reads", late_reads_},
                   {"puts beside it", puts_},
                   {"late puts", late_puts_},
                   {"longest us", std::chrono::duration_cast<std::chrono::microseconds>(longest_).count()},
                   {"wrong", wrong_}});
    EXPECT_GE(stops, does == Does::get ? 4u : 12u);
    EXPECT_EQ(wrong_, 0u);
    EXPECT_LT(longest_, kiln::at_most(10s));
    EXPECT_EQ(store_->verify().damaged.size(), 0u);
  }

  std::shared_ptr<Store> store_, hasty_;
  pid_t pid_ = 0;
  std::uint32_t next_ = 100;
  std::uint64_t reads_ = 0, late_reads_ = 0, puts_ = 0, late_puts_ = 0, wrong_ = 0;
  base::Clock::duration longest_{};
};

TEST_F(StoppedHolder, ReaderStoppedAtAnyLockCallDelaysWritersOnly) {
  step_through(Does::get, "a reader stopped at each lock call");
  EXPECT_EQ(late_reads_, 0u);
}

TEST_F(StoppedHolder, WriterStoppedAtAnyLockCallDelaysOthersUntilTheirDeadlines) {
  step_through(Does::put, "a writer stopped at each lock call");
  EXPECT_GT(late_reads_, 0u);  // where the writer stopped while the gate was drained
  EXPECT_GT(reads_, late_reads_);
}

}  // namespace
}  // namespace kiln::cache::test
