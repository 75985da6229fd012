// A store of 10^6 small and 10^4 large records beside raw LMDB with the same content, in one
// process and interleaved. Smaller stores are measured for comparison. KILN_BENCH_SMALL and
// KILN_BENCH_LARGE change the numbers of the largest store.
#include "tests/bench/store_scale.hpp"

#include <lmdb.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "cache/store/eviction.hpp"
#include "cache/store/file/pieces.hpp"
#include "cache/store/store.hpp"

namespace kiln::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSmall = 1000, kLarge = 50'000, kPut = 10'000;
constexpr std::size_t kMap = std::size_t{64} << 30;
constexpr int kReads = 20'000, kPuts = 400, kOpens = 101;

void must(int rc) {
  if (rc == 0) return;
  std::fprintf(stderr, "LMDB: %s\n", mdb_strerror(rc));
  std::exit(1);
}

Key key_of(std::uint32_t number) {
  Key key;
  key.specialisation = base::digest_of(std::to_string(number));
  key.toolchain = base::digest_of("toolchain");
  return key;
}

struct Times {
  std::vector<double> us;
  template <class Body>
  void measure(Body&& body) {
    const auto start = Clock::now();
    body();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  double at(double share) {
    std::sort(us.begin(), us.end());
    return us[std::min(us.size() - 1, static_cast<std::size_t>(share * static_cast<double>(us.size())))];
  }
};

struct Environment {
  MDB_env* env = nullptr;
  MDB_dbi dbi = 0;
  Environment(const std::string& path, unsigned flags) {
    must(mdb_env_create(&env));
    must(mdb_env_set_mapsize(env, kMap));
    must(mdb_env_open(env, path.c_str(), MDB_NOSUBDIR | MDB_NOLOCK | MDB_NORDAHEAD | flags, 0600));
    MDB_txn* txn = begin();
    must(mdb_dbi_open(txn, nullptr, 0, &dbi));
    must(mdb_txn_commit(txn));
  }
  ~Environment() { mdb_env_close(env); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  MDB_txn* begin(unsigned flags = 0) const {
    MDB_txn* txn = nullptr;
    must(mdb_txn_begin(env, nullptr, flags, &txn));
    return txn;
  }
  void put(const Key& key, const std::string& value, unsigned flags = 0) const {
    MDB_txn* txn = begin();
    put_in(txn, key, value, flags);
    must(mdb_txn_commit(txn));
  }
  void put_in(MDB_txn* txn, const Key& key, const std::string& value, unsigned flags) const {
    MDB_val at{sizeof key, const_cast<Key*>(&key)}, bytes{value.size(), const_cast<char*>(value.data())};
    must(mdb_put(txn, dbi, &at, &bytes, flags));
  }
};

/// Calls `each(txn, i)` for all i below `count`, 20,000 to a transaction, and syncs.
template <class Each>
void fill(const Environment& to, std::size_t count, Each&& each) {
  MDB_txn* txn = to.begin();
  for (std::size_t i = 0; i < count; ++i) {
    each(txn, i);
    if (i % 20'000 == 19'999) must(mdb_txn_commit(txn)), txn = to.begin();
  }
  must(mdb_txn_commit(txn));
  must(mdb_env_sync(to.env, 1));
}

std::string image_of(std::uint32_t number, bool large) {
  return std::string(large ? kLarge : kSmall, static_cast<char>(number));
}

struct Row {
  std::uint32_t small, large;
  double open, store_p50, store_p99, raw_p50, raw_p99, put_p50, put_p99, raw_put_p50, raw_put_p99, list_ms,
      stats_ms;
  std::uint64_t file_mib;
};

/// Fills the store and raw LMDB. Records with a number below `large` are large.
void build(const base::TempDir& dir, std::uint32_t small, std::uint32_t large) {
  cache::Store::open({dir.path()});
  std::vector<std::pair<Key, std::uint32_t>> keys;
  for (std::uint32_t n = 0; n < small + large; ++n) keys.emplace_back(key_of(n), n);
  std::sort(keys.begin(), keys.end(), [](auto& a, auto& b) { return a.first < b.first; });
  const Environment store(dir.path() + "/v1/data.mdb", MDB_NOSYNC), raw(dir.path() + "/raw.mdb", MDB_NOSYNC);
  const auto now = static_cast<std::uint64_t>(std::time(nullptr));
  fill(store, keys.size(), [&](MDB_txn* txn, std::size_t i) {
    const auto& [key, n] = keys[i];
    const std::string encoded = cache::encode({key, "facts", "key text", image_of(n, n < large)});
    must(cache::write_record(txn, store.dbi, key, encoded, MDB_APPEND));
  });
  fill(store, keys.size(), [&](MDB_txn* txn, std::size_t i) {
    const auto& [key, n] = keys[i];
    // The first value is the tick of the last use: large records were used last.
    must(cache::write_use(txn, store.dbi, key, {n < large ? 0 : -std::int64_t{n}, now, 1, now}, MDB_APPEND));
  });
  fill(raw, keys.size(), [&](MDB_txn* txn, std::size_t i) {
    raw.put_in(txn, keys[i].first, image_of(keys[i].second, keys[i].second < large), 0);
  });
}

void read(Row& row, const base::TempDir& dir, const Environment& raw) {
  const auto store = cache::Store::open({dir.path()});
  Times ours, theirs;
  std::mt19937 random(1);
  for (int i = -2000; i < kReads; ++i) {
    const Key key = key_of(random() % row.large), other = key_of(random() % row.large);
    Times ignored;
    (i < 0 ? ignored : ours).measure([&] {
      if (!store->get(key, "key text", base::Deadline::after(1s)).record) std::exit(1);
    });
    (i < 0 ? ignored : theirs).measure([&] {
      MDB_txn* txn = raw.begin(MDB_RDONLY);
      MDB_val at{sizeof other, const_cast<Key*>(&other)}, value{};
      must(mdb_get(txn, raw.dbi, &at, &value));
      const std::string image(static_cast<const char*>(value.mv_data), value.mv_size);
      mdb_txn_abort(txn);
      volatile std::uint64_t hash = base::hash64(image);
      static_cast<void>(hash);
    });
  }
  row.store_p50 = ours.at(0.5), row.store_p99 = ours.at(0.99);
  row.raw_p50 = theirs.at(0.5), row.raw_p99 = theirs.at(0.99);
}

void write(Row& row, const base::TempDir& dir, const Environment& raw) {
  const auto store = cache::Store::open({dir.path(), cache::Access::read_write, kMap, 10s});
  Times ours, theirs;
  for (std::uint32_t i = 0; i < kPuts; ++i) {
    const Key key = key_of(10'000'000 + i);
    const std::string image(kPut, static_cast<char>(i));
    ours.measure([&] {
      if (store->put({key, "facts", "key text", image}).put != cache::Put::stored) std::exit(1);
    });
    theirs.measure([&] { raw.put(key, image); });
  }
  row.put_p50 = ours.at(0.5), row.put_p99 = ours.at(0.99);
  row.raw_put_p50 = theirs.at(0.5), row.raw_put_p99 = theirs.at(0.99);
}

void print(const Row& r) {
  std::printf(
      "| %u + %u | %lu | %.0f | %.1f / %.1f | %.1f / %.1f | %.2f | %.0f / %.0f | %.0f / %.0f | %.2f | %.1f "
      "| %.1f |",
      r.small, r.large, static_cast<unsigned long>(r.file_mib), r.open, r.store_p50, r.store_p99, r.raw_p50,
      r.raw_p99, r.store_p50 / r.raw_p50, r.put_p50, r.put_p99, r.raw_put_p50, r.raw_put_p99,
      r.put_p50 / r.raw_put_p50, r.list_ms, r.stats_ms);
  std::fflush(stdout);
}

void measure(std::uint32_t small, std::uint32_t large) {
  Row row{};
  row.small = small, row.large = large;
  const base::TempDir dir("kiln-store-scale-");
  build(dir, small, large);
  Times opens, lists, stats, evictions;
  for (int i = 0; i < kOpens; ++i) {
    std::shared_ptr<cache::Store> store;
    opens.measure([&] { store = cache::Store::open({dir.path()}); });
  }
  row.open = opens.at(0.5);
  const Environment raw(dir.path() + "/raw.mdb", 0);
  read(row, dir, raw);
  write(row, dir, raw);
  const auto store = cache::Store::open({dir.path()});
  std::uint64_t listed = 0;
  lists.measure([&] { store->list([&](const cache::Entry&) { ++listed; }); });
  cache::StoreStats now;
  stats.measure([&] { now = store->stats(); });
  if (listed != now.entries || listed != small + large + kPuts) std::exit(1);
  row.list_ms = lists.at(0.5) / 1000, row.stats_ms = stats.at(0.5) / 1000;
  row.file_mib = now.file_bytes >> 20;
  print(row);  // printed before eviction, which may take long
  cache::StoreFile file(dir.path(), true);
  std::uint64_t evicted = 0;
  evictions.measure([&] {
    evicted = cache::evict(file, {now.live_bytes / 100 * 95, kMap}, base::Deadline::after(1min));
  });
  std::printf(" %.0f (%lu) |\n", evictions.at(0.5) / 1000, static_cast<unsigned long>(evicted));
}
std::uint32_t configured(const char* name, std::uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : otherwise;
}

}  // namespace

void run_scale() {
  const std::uint32_t small = configured("KILN_BENCH_SMALL", 1'000'000);
  const std::uint32_t large = configured("KILN_BENCH_LARGE", 10'000);
  std::printf(
      "| 1 KB + 50 KB records | file MiB | open us | read 50 KB us p50 / p99 | raw LMDB + copy + XXH3 | "
      "ratio "
      "p50 | put 10 KB us p50 / p99 | raw put, synced | ratio p50 | list ms | stats ms | evict 5 %% ms "
      "(entries) |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [s, l] : {std::pair{900u, 100u}, {90'000u, 10'000u}, {small, large}}) {
    measure(s, l);
  }
}

}  // namespace kiln::bench
