// Twelve processes on one store, one of them killed every 5 ms. No wrong
// read, no lost acknowledged put, no abort.
// KILN_SOAK_SECONDS is the shortest duration. KILN_SOAK_PUTS is the number of acknowledged puts after
// which the test ends (10^5 or more for a soak).
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <random>
#include <thread>

#include "kiln/error.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kStormKeys = 480;
constexpr int kWorkers = 12;
constexpr auto kKillEvery = 5ms;

/// Shared by the processes.
struct Board {
  std::atomic<std::uint32_t> acknowledged[kStormKeys];  // the newest version whose put was acknowledged
  std::atomic<std::uint64_t> reads, hits, puts, skipped, wrong, lost, errors;
};

enum class Namespaces { shared, own_pid, own_pid_and_shm };

/// Reads random keys and puts newer versions of its own keys, until it is killed. Ends at `until`,
/// in case the process that kills it is gone.
[[noreturn]] void work(Board& board, const StoreOptions& options, unsigned seed, std::uint32_t slot,
                       base::Deadline until) {
  try {
    const auto store = Store::open(options);
    for (std::mt19937 random(seed); !until.passed();) {
      std::uint32_t number = random() % kStormKeys;
      if (random() % 4 == 0) {
        number = number / kWorkers * kWorkers + slot;  // each key has one writer
        const std::uint32_t version = board.acknowledged[number] + 1 + (random() % 2);
        const Put put = store->put(version_of(number, version)).put;
        if (put == Put::stored)
          board.acknowledged[number] = version, ++board.puts;
        else if (put == Put::present)  // a killed worker stored it and could not report it
          board.acknowledged[number] = version;
        else
          ++board.skipped;
        continue;
      }
      const std::uint32_t at_least = board.acknowledged[number];
      const auto got = store->peek(key_of(number), soon());
      ++board.reads;
      if (!got && at_least != 0) ++board.lost;
      if (!got) continue;
      ++board.hits;
      if (!same(*got, version_of(number, version_in(*got)))) ++board.wrong;
      if (version_in(*got) < at_least)
        ++board.lost;  // a newer version is right: a killed worker stored it unreported
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "worker: %s\n", error.what());
    ++board.errors;
  }
  ::_exit(1);
}

class StormTest : public StoreFixture {
 protected:
  static bool mount_own_shm() {
    return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("kiln", "/dev/shm", "tmpfs", 0, "size=16m") == 0;
  }

  pid_t start(std::uint32_t slot, unsigned seed, Namespaces namespaces) {
    long flags = SIGCHLD;
    if (namespaces != Namespaces::shared) flags |= CLONE_NEWPID;
    if (namespaces == Namespaces::own_pid_and_shm) flags |= CLONE_NEWNS;
    const auto pid =
        static_cast<pid_t>(::syscall(SYS_clone, flags, 0, 0, 0, 0));  // runs no pthread_atfork handler
    if (pid != 0) return pid;
    if (namespaces != Namespaces::shared && ::getpid() != 1) ::_exit(78);
    if (namespaces == Namespaces::own_pid_and_shm && !mount_own_shm()) ::_exit(79);
    work(*board_, options(), seed, slot, give_up_);
  }

  /// Kills the worker. A worker that ended in another way counts as an abort.
  void end(pid_t worker) {
    ASSERT_GT(worker, 0);
    ::kill(worker, SIGKILL);
    int status = 0;
    ::waitpid(worker, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) ++aborts_;
  }

  void storm(const char* fault, Namespaces namespaces) {
    const auto seconds = std::chrono::seconds(configured("KILN_SOAK_SECONDS", 4));
    const std::uint64_t puts = configured("KILN_SOAK_PUTS", 500);
    give_up_ = base::Deadline::after(seconds + 1h);
    std::mt19937 random(7);
    pid_t workers[kWorkers];
    for (int slot = 0; slot < kWorkers; ++slot) workers[slot] = start(slot, random(), namespaces);
    std::uint64_t killed = 0;
    const auto patience = base::Deadline::after(seconds + (puts > 500 ? 1h : 60s));
    for (const auto until = base::Deadline::after(seconds);
         !until.passed() || (board_->puts < puts && !patience.passed()); ++killed) {
      std::this_thread::sleep_for(kKillEvery);
      const int slot = static_cast<int>(random() % kWorkers);
      end(workers[slot]);
      workers[slot] = start(slot, random(), namespaces);
    }
    for (const pid_t worker : workers) end(worker);

    const auto store = open();
    for (std::uint32_t number = 0; number < kStormKeys; ++number) {
      const auto got = store->peek(key_of(number), soon());
      ++board_->reads;
      if (got && !same(*got, version_of(number, version_in(*got)))) ++board_->wrong;
      if ((got ? version_in(*got) : 0) < board_->acknowledged[number]) ++board_->lost;
    }
    report(fault, {{"puts", board_->puts},
                   {"reads", board_->reads},
                   {"hits", board_->hits},
                   {"killed", killed},
                   {"skipped puts", board_->skipped},
                   {"lost", board_->lost},
                   {"wrong", board_->wrong},
                   {"aborts", aborts_ + board_->errors}});
    EXPECT_EQ(board_->wrong, 0u);
    EXPECT_EQ(board_->lost, 0u);
    EXPECT_EQ(aborts_ + board_->errors, 0u);
    EXPECT_GE(board_->puts, puts);
    EXPECT_GT(board_->hits, 100u);
  }

  Shared<Board> board_;
  std::uint64_t aborts_ = 0;
  base::Deadline give_up_ = base::Deadline::never();
};

TEST_F(StormTest, KilledProcessesLoseAndCorruptNothing) { storm("kill -9", Namespaces::shared); }

TEST_F(StormTest, KilledProcessesInNamespacesOfTheirOwnLoseAndCorruptNothing) {
  if (child([] { return ::unshare(CLONE_NEWPID) == 0 ? 0 : 1; }) != 0)
    GTEST_SKIP() << "PID namespaces are not permitted here";
  storm("kill -9, a PID namespace each", Namespaces::own_pid);
}

TEST_F(StormTest, KilledProcessesThatShareTheVolumeOnlyLoseAndCorruptNothing) {
  if (child([] { return ::unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 && mount_own_shm() ? 0 : 1; }) != 0)
    GTEST_SKIP() << "mounts or namespaces are not permitted here";
  storm("kill -9, a PID namespace and a /dev/shm each", Namespaces::own_pid_and_shm);
}

}  // namespace
}  // namespace kiln::cache::test
