// A crowd at the gate: processes whose threads share one store, writers that free and reuse
// pages all the time, processes stopped at random moments, and forks in the middle of reads. No
// reader may see a page that a writer reuses.
// KILN_SOAK_READS is the number of reads after which the test ends (10^7 for a soak).
#include <random>
#include <thread>

#include "cache/store/file/pieces.hpp"
#include "cache/store/file/store_file.hpp"
#include "support/nightly.hpp"
#include "tests/fault/store/fixture.hpp"
#include "tests/fault/store/latencies.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr int kReaderProcesses = 12, kThreads = 4, kWriterProcesses = 16;  // 48 readers, 16 writers
constexpr std::uint32_t kCrowdKeys = 160;
constexpr std::uint64_t kFewestPuts = 200;

struct CrowdBoard {
  std::atomic<std::uint32_t> acknowledged[kCrowdKeys];
  std::atomic<std::uint64_t> reads, bad, lost, torn_metas, timeouts, puts, skipped, forks, bad_forks, stops;
  std::atomic<bool> stop;
  Latencies entering, writing;
};

Record content(std::uint32_t key, std::uint32_t version) {
  Record record = record_of(key * 100'000 + version, 500 + (key * 7919 + version * 104'729) % 12'000);
  record.key = key_of(key);
  record.key_text = std::to_string(version);
  return record;
}

class GateCrowd : public StoreFixture {
 protected:
  /// The store lies in memory: pages are reused a hundred times as often as on a
  /// disk, and the test is not about the disk.
  static void SetUpTestSuite() {
    if (!std::getenv("TMPDIR") && ::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  }
  static void TearDownTestSuite() {
    if (std::string(std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "") == "/dev/shm") ::unsetenv("TMPDIR");
  }

  /// Reads once, without the store's second look at damage. In some calls
  /// it first stays in the gate for a while.
  void read(StoreFile& file, std::mt19937& random) {
    const std::uint32_t number = random() % kCrowdKeys;
    const std::uint32_t at_least = board_->acknowledged[number];
    Buffer encoded;
    Copied copied = Copied::absent;
    std::string why;
    std::optional<Reading> reading;
    try {
      const auto start = base::Clock::now();
      const Entered entered = Reading::enter(file, soon(), reading, why);
      board_->entering.add(base::Clock::now() - start);
      if (entered != Entered::yes) {
        ++board_->timeouts;
        return;
      }
    } catch (const Damaged&) {  // a meta page read during a write; the store would look twice
      ++board_->torn_metas;
      return;
    }
    try {
      if (random() % 256 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      copied = copy_record(reading->pages(), key_of(number), encoded);
    } catch (const Damaged& damage) {
      std::fprintf(stderr, "read: %s\n", damage.what());
      ++board_->bad;
    }
    reading.reset();
    ++board_->reads;
    if (copied == Copied::absent) {
      if (at_least != 0) ++board_->lost;
      return;
    }
    const auto record = decode(key_of(number), encoded.view());
    if (!record || !same(*record, content(number, version_in(*record))))
      ++board_->bad;
    else if (version_in(*record) < at_least)
      ++board_->lost;
  }

  int read_in_threads(unsigned seed) {
    StoreFile file(directory(), true);
    const auto store = open();
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        std::mt19937 random(seed * kThreads + i);
        for (int n = 1; !board_->stop; ++n) {
          read(file, random);
          if (n % 16 == 0) std::this_thread::sleep_for(1ms);  // leaves cores for the writers
        }
      });
    std::mt19937 random(seed + 1000);
    while (!board_->stop) {  // forks while the threads are in the middle of reads
      std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 50));
      if (kSanitized) continue;  // a sanitizer's allocator may be locked in the child
      const int status = in_child([&] {
        ::alarm(60);
        for (int i = 0; i < 20; ++i) read(file, random);
        return store->peek(key_of(0), soon()) ? 0 : 1;
      });
      ++board_->forks;
      if (status != 0) ++board_->bad_forks;
    }
    for (auto& thread : threads) thread.join();
    return 0;
  }

  int write(std::uint32_t slot) {
    const auto store = open();
    const std::chrono::milliseconds pause(configured("KILN_SOAK_PAUSE_MS", 20));
    for (std::mt19937 random(slot); !board_->stop;) {
      const std::uint32_t number = random() % (kCrowdKeys / kWriterProcesses) * kWriterProcesses + slot;
      const std::uint32_t version = board_->acknowledged[number] + 1;
      const auto start = base::Clock::now();
      const Put put = store->put(content(number, version)).put;
      board_->writing.add(base::Clock::now() - start);
      if (put == Put::stored)
        board_->acknowledged[number] = version, ++board_->puts;
      else
        ++board_->skipped;
      std::this_thread::sleep_for(pause);
    }
    return 0;
  }

  Shared<CrowdBoard> board_;
};

TEST_F(GateCrowd, NobodyReadsWhatAWriterReuses) {
  KILN_NIGHTLY_ONLY();
  const std::uint64_t enough = configured("KILN_SOAK_READS", 150'000);
  put_wait_ = 20s;
  open()->put(content(0, 1));
  board_->acknowledged[0] = 1;
  std::vector<pid_t> all;
  const auto start = [&](const std::function<int()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(7200);  // ends the child if the test program is killed
      ::_exit(body());
    }
    all.push_back(pid);
  };
  for (int i = 0; i < kReaderProcesses; ++i) start([&] { return read_in_threads(i); });
  for (int i = 0; i < kWriterProcesses; ++i) start([&] { return write(i); });
  std::mt19937 random(1);
  for (const auto patience = base::Deadline::after(enough > 1'000'000 ? 2h : 60s);
       (board_->reads < enough || board_->puts < kFewestPuts) && !patience.passed();) {
    const pid_t victim = all[random() % all.size()];
    ::kill(victim, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + random() % 8));
    ::kill(victim, SIGCONT);
    ++board_->stops;
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 16));
  }
  board_->stop = true;
  int bad_ends = 0;
  for (const pid_t pid : all) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    bad_ends += status != 0;
  }
  report("a crowd at the gate", {{"reads", board_->reads},
                                 {"bad", board_->bad},
                                 {"lost", board_->lost},
                                 {"metas read while written", board_->torn_metas},
                                 {"timeouts", board_->timeouts},
                                 {"puts", board_->puts},
                                 {"skipped", board_->skipped},
                                 {"stops", board_->stops},
                                 {"forks", board_->forks},
                                 {"bad forks", board_->bad_forks},
                                 {"enter p50 us", board_->entering.all_but_one_in(2)},
                                 {"enter p99 us", board_->entering.all_but_one_in(100)},
                                 {"put p50 us", board_->writing.all_but_one_in(2)},
                                 {"put p99 us", board_->writing.all_but_one_in(100)},
                                 {"put max us", board_->writing.longest_us()}});
  EXPECT_EQ(bad_ends, 0);
  EXPECT_EQ(board_->bad, 0u);
  EXPECT_EQ(board_->lost, 0u);
  EXPECT_EQ(board_->timeouts, 0u);
  EXPECT_EQ(board_->skipped, 0u);
  EXPECT_EQ(board_->bad_forks, 0u);
  EXPECT_GE(board_->puts, kFewestPuts);
  EXPECT_GE(board_->reads, enough);
  EXPECT_EQ(open()->verify().damaged.size(), 0u);
}

}  // namespace
}  // namespace kiln::cache::test
