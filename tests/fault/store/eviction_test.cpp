// A store at its cap: many processes that put and rewrite records of mixed sizes, and one process alone.
// KILN_SOAK_MIB is the amount that is put, and KILN_SOAK_CAP_MIB the cap (10240 and 256 for a soak). With
// KILN_SOAK_PUT_WAIT_MS=500, as in production, the test shows how many puts are skipped.
#include <sys/stat.h>

#include <cmath>
#include <random>
#include <thread>

#include "tests/fault/store/fixture.hpp"
#include "tests/fault/store/latencies.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kWriters = 5;
constexpr std::uint32_t kKeysPerWriter = 4000;

/// Log-uniform sizes: as many from 1 to 2 KB as from 1 to 2 MB.
std::size_t mixed_size(std::mt19937& random) {
  return static_cast<std::size_t>(1000 * std::exp2(11.0 * (random() % 4096) / 4096));
}

struct EvictionBoard {
  std::atomic<std::uint64_t> attempted_bytes, stored_bytes, stored, full, gate_timeouts, failed, evicted;
  std::atomic<std::uint64_t> reads, hits, wrong, lost, overtaken, peak_bytes;
  Latencies puts;
};

class EvictionTest : public StoreFixture {
 protected:
  StoreOptions capped(std::uint64_t mib) const {
    StoreOptions o = options();
    o.cap_bytes = mib * kMiB;
    o.put_wait = std::chrono::milliseconds(configured("KILN_SOAK_PUT_WAIT_MS", 5000));
    o.upkeep = 50ms;
    return o;
  }
  std::uint64_t size_outside() const {
    struct stat st {};
    return ::stat(data_file().c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
  }
  Put put(Store& store, const Key& key, const Record& record) {
    board_->attempted_bytes += record.image.size();
    const auto start = base::Clock::now();
    const PutResult result = store.put(with_key(key, record));
    board_->puts.add(base::Clock::now() - start);
    board_->evicted += result.evicted;
    if (result.put == Put::stored) ++board_->stored, board_->stored_bytes += record.image.size();
    if (result.put == Put::full) ++board_->full;
    if (result.put == Put::gate_timeout) ++board_->gate_timeouts;
    if (result.put == Put::failed) {
      ++board_->failed;
      std::fprintf(stderr, "put: %s\n", result.detail.c_str());
    }
    return result.put;
  }

  /// Puts new keys and newer versions of old ones. Reads back its own records and those that others put.
  int write(std::uint32_t slot, const StoreOptions& options, std::uint64_t limit_bytes) {
    const auto store = Store::open(options);
    std::mt19937 random(slot);
    // Eviction keeps the most recently used bytes. It never evicts the last 9/10 of the cap,
    // less the largest room that a put makes.
    const std::uint64_t safe_bytes =
        options.cap_bytes / 10 * 9 - std::min<std::uint64_t>(options.cap_bytes / 10 * 6, 17 * kMiB);
    for (std::uint32_t version = 1; board_->stored_bytes < limit_bytes; ++version) {
      const std::uint32_t own = random() % 3 != 0 ? random() % 40 : 40 + version % (kKeysPerWriter - 40);
      const Key key = key_of(slot * kKeysPerWriter + own);
      Record record = record_of(slot << 24 ^ version, mixed_size(random));
      record.key_text = std::to_string(slot << 24 ^ version);
      const std::uint64_t before = board_->attempted_bytes;
      if (put(*store, key, record) != Put::stored) continue;
      const auto got = store->get(key, record.key_text, soon());
      ++board_->reads;
      if (!got.record && board_->attempted_bytes - before < safe_bytes) ++board_->lost;
      if (!got.record && board_->attempted_bytes - before >= safe_bytes) ++board_->overtaken;
      if (got.record && !same(*got.record, record)) ++board_->wrong;
      for (int i = 0; i < 3; ++i) read_any(*store, random);
    }
    return 0;
  }
  /// A record that is there must be whole, and must match its key text.
  void read_any(Store& store, std::mt19937& random) {
    const auto got = store.peek(key_of((random() % kWriters) * kKeysPerWriter + random() % 40), soon());
    ++board_->reads;
    if (!got) return;
    ++board_->hits;
    const auto number = static_cast<std::uint32_t>(std::strtoul(got->key_text.c_str(), nullptr, 10));
    Record expected = record_of(number, got->image.size());
    expected.key_text = got->key_text;
    if (!same(*got, expected)) ++board_->wrong;
  }

  Shared<EvictionBoard> board_;
};

TEST_F(EvictionTest, FileStaysUnderItsCapAndTheLatestPutsSurvive) {
  const std::uint64_t cap = configured("KILN_SOAK_CAP_MIB", 32), through = configured("KILN_SOAK_MIB", 160);
  const StoreOptions o = capped(cap);
  open();
  std::vector<pid_t> writers;
  for (std::uint32_t slot = 0; slot < kWriters; ++slot) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(7200);  // ends the child if the test program is killed
      ::_exit(write(slot, o, through * kMiB));
    }
    writers.push_back(pid);
  }
  int bad_ends = 0;
  for (const pid_t pid : writers) {
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      board_->peak_bytes = std::max(board_->peak_bytes.load(), size_outside());
      std::this_thread::sleep_for(200us);
    }
    bad_ends += status != 0;
  }
  const auto store = Store::open(o);
  const StoreStats stats = store->stats();
  std::uint64_t listed = 0;
  store->list([&](const Entry&) { ++listed; });
  report("eviction races", {{"MiB put", board_->stored_bytes / kMiB},
                            {"cap MiB", cap},
                            {"peak MiB", board_->peak_bytes / kMiB},
                            {"puts", board_->stored},
                            {"evicted", board_->evicted},
                            {"full", board_->full},
                            {"gate timeouts", board_->gate_timeouts},
                            {"failed", board_->failed},
                            {"put p50 us", board_->puts.all_but_one_in(2)},
                            {"put p99 us", board_->puts.all_but_one_in(100)},
                            {"put max us", board_->puts.longest_us()},
                            {"reads", board_->reads},
                            {"lost", board_->lost},
                            {"overtaken", board_->overtaken},
                            {"wrong", board_->wrong}});
  EXPECT_EQ(bad_ends, 0);
  EXPECT_EQ(board_->wrong, 0u);
  EXPECT_EQ(board_->lost, 0u);
  EXPECT_EQ(board_->failed, 0u);
  EXPECT_LE(board_->peak_bytes, cap * kMiB);
  EXPECT_GT(board_->evicted, 0u);
  EXPECT_LT((board_->full + board_->gate_timeouts) * 100, board_->puts.count());
  EXPECT_EQ(stats.file_bytes, size_outside());
  EXPECT_LE(stats.live_bytes, cap * kMiB / 10 * 9);
  EXPECT_EQ(stats.entries, listed);
  EXPECT_EQ(store->verify().damaged.size(), 0u);
}

TEST_F(EvictionTest, OneProcessAloneGoesOnPastItsCap) {
  const auto store = Store::open(capped(8));
  for (std::uint32_t number = 0; number < 400; ++number) {
    put(*store, key_of(number), record_of(number, 100'000));
    board_->peak_bytes = std::max(board_->peak_bytes.load(), size_outside());
    if (!holds(*store, number, 100'000)) ++board_->lost;
  }
  report("one process past its cap", {{"puts", board_->puts.count()},
                                      {"stored", board_->stored},
                                      {"evicted", board_->evicted},
                                      {"full", board_->full},
                                      {"lost", board_->lost},
                                      {"peak KiB", board_->peak_bytes / 1024}});
  EXPECT_EQ(board_->stored, 400u);
  EXPECT_EQ(board_->lost, 0u);
  EXPECT_LE(board_->peak_bytes, 8 * kMiB);
}

}  // namespace
}  // namespace kiln::cache::test
