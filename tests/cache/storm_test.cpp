// Many processes on one store, some of them killed at random: no wrong read, no lost acknowledged put.
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <random>
#include <thread>

#include "kiln/error.hpp"
#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kKeys = 400;
constexpr int kWorkers = 8;

/// Shared between the processes.
struct Board {
  std::atomic<std::uint32_t> acknowledged[kKeys];  // the newest version whose put was acknowledged
  std::atomic<std::uint64_t> gets, hits, puts, skipped, wrong, lost, errors;
};

/// Version v of key k has its own key text and content, so that each put of a newer one replaces.
Record version_of(std::uint32_t number, std::uint32_t version) {
  Record record = record_of(number * 1000 + version, 100 + (number * 7919 + version * 104729) % 30'000);
  record.key_text = std::to_string(version);
  return record;
}

[[noreturn]] void work(Board& board, const StoreOptions& options, unsigned seed, int slot) {
  try {
    const auto store = Store::open(options);
    std::mt19937 random(seed);
    for (const auto until = base::Deadline::after(15s);
         !until.passed();) {  // should whoever kills it be gone
      const std::uint32_t number = random() % kKeys;
      if (random() % 4 == 0 &&
          number % kWorkers == static_cast<std::uint32_t>(slot)) {  // each key has one writer
        const std::uint32_t version = board.acknowledged[number] + 1 + (random() % 2);
        const auto result = store->put(key_of(number), version_of(number, version));
        if (result.put == Put::stored)
          board.acknowledged[number] = version, ++board.puts;
        else if (result.put == Put::present)  // stored by a worker that was killed before it could say so
          board.acknowledged[number] = version;
        else
          ++board.skipped;
        continue;
      }
      const std::uint32_t at_least = board.acknowledged[number];
      const auto got = store->peek(key_of(number), soon());
      ++board.gets;
      if (got) {
        ++board.hits;
        const auto version = static_cast<std::uint32_t>(std::stoul(got->key_text));
        if (!same(*got, version_of(number, version))) ++board.wrong;
        if (version < at_least) ++board.lost;  // newer is right: stored, and killed before it could say so
      } else if (at_least != 0) {
        ++board.lost;
      }
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "worker: %s\n", error.what());
    ++board.errors;
  }
  ::_exit(1);
}

class StormTest : public StoreFixture {
 protected:
  void SetUp() override {
    void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board{};
  }
  void TearDown() override { ::munmap(board_, sizeof(Board)); }

  enum class Namespaces { shared, own };

  pid_t start(int slot, unsigned seed, Namespaces namespaces) {
    const long flags = SIGCHLD | (namespaces == Namespaces::own ? CLONE_NEWPID : 0);
    const auto pid =
        static_cast<pid_t>(::syscall(SYS_clone, flags, 0, 0, 0, 0));  // runs no pthread_atfork handler
    if (pid != 0) return pid;
    if (namespaces == Namespaces::own && ::getpid() != 1) ::_exit(78);
    work(*board_, options(), seed, slot);
  }

  static void end(pid_t worker) {
    ASSERT_GT(worker, 0);
    ::kill(worker, SIGKILL);
    ::waitpid(worker, nullptr, 0);
  }

  void storm(Namespaces namespaces) {
    open();
    std::mt19937 random(7);
    pid_t workers[kWorkers];
    for (int slot = 0; slot < kWorkers; ++slot) workers[slot] = start(slot, random(), namespaces);
    int killed = 0;
    for (const auto until = base::Deadline::after(5s); !until.passed(); ++killed) {
      std::this_thread::sleep_for(20ms);
      const int slot = static_cast<int>(random() % kWorkers);
      end(workers[slot]);
      workers[slot] = start(slot, random(), namespaces);
    }
    for (const pid_t worker : workers) end(worker);
    std::printf("%d killed, %lu gets (%lu hits), %lu puts, %lu skipped\n", killed, board_->gets.load(),
                board_->hits.load(), board_->puts.load(), board_->skipped.load());
    EXPECT_EQ(board_->wrong, 0u);
    EXPECT_EQ(board_->lost, 0u);
    EXPECT_EQ(board_->errors, 0u);
    EXPECT_GT(board_->puts, 100u);
    EXPECT_GT(board_->hits, 100u);
    const auto store = open();
    for (std::uint32_t number = 0; number < kKeys; ++number) {
      if (board_->acknowledged[number] == 0) continue;
      const auto got = store->peek(key_of(number), soon());
      ASSERT_TRUE(got) << number;
      const auto version = static_cast<std::uint32_t>(std::stoul(got->key_text));
      EXPECT_TRUE(same(*got, version_of(number, version))) << number;
      EXPECT_GE(version, board_->acknowledged[number]) << number;
    }
  }

  Board* board_ = nullptr;
};

TEST_F(StormTest, KilledProcessesLoseAndCorruptNothing) { storm(Namespaces::shared); }

TEST_F(StormTest, KilledProcessesInNamespacesOfTheirOwnLoseAndCorruptNothing) {
  const int permitted = in_child([] { return ::unshare(CLONE_NEWPID) == 0 ? 0 : 1; });
  if (permitted != 0) GTEST_SKIP() << "PID namespaces are not permitted here";
  storm(Namespaces::own);
}

}  // namespace
}  // namespace kiln::cache::test
