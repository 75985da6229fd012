// The cost of the store over raw LMDB: a read of one 50 KB image, in one process. A verified read may take
// three times a raw one (docs/internals/faults.md, "What it costs"). `store_bench scale` prints the table of
// store_scale.cpp instead.
#include <benchmark/benchmark.h>
#include <lmdb.h>

#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "cache/store/recent_uses.hpp"
#include "cache/store/store.hpp"
#include "tests/bench/store_scale.hpp"

namespace {

using namespace kiln;

constexpr std::size_t kImageBytes = 50'000;

std::uint32_t entries() {
  const char* text = std::getenv("KILN_BENCH_ENTRIES");
  return text ? static_cast<std::uint32_t>(std::atol(text)) : 1000;
}

Key key_of(std::uint32_t number) {
  Key key;
  key.specialisation = base::digest_of(std::to_string(number));
  return key;
}

struct Stored {
  base::TempDir dir{"kiln-store-bench-"};
  std::shared_ptr<cache::Store> store = cache::Store::open({dir.path()});
  MDB_env* raw = nullptr;
  MDB_dbi dbi = 0;

  Stored() {
    mdb_env_create(&raw);
    mdb_env_set_mapsize(raw, std::size_t{64} << 30);
    mdb_env_open(raw, (dir.path() + "/raw.mdb").c_str(),
                 MDB_NOSUBDIR | MDB_NOLOCK | MDB_NORDAHEAD | MDB_NOSYNC, 0600);
    MDB_txn* txn = nullptr;
    mdb_txn_begin(raw, nullptr, 0, &txn);
    mdb_dbi_open(txn, nullptr, 0, &dbi);
    for (std::uint32_t n = 0; n < entries(); ++n) {
      const Key key = key_of(n);
      const std::string image(kImageBytes, static_cast<char>(n));
      store->put({key, "facts", "key text", image});
      MDB_val at{sizeof key, const_cast<Key*>(&key)}, value{image.size(), const_cast<char*>(image.data())};
      mdb_put(txn, dbi, &at, &value, 0);
    }
    mdb_txn_commit(txn);
  }
};

Stored& stored() {
  static Stored it;
  return it;
}

void StoreGet(benchmark::State& state) {
  Stored& s = stored();
  std::mt19937 random(1);
  std::size_t misses = 0;
  for (auto _ : state) {
    auto got = s.store->get(key_of(random() % entries()), "key text",
                            base::Deadline::after(std::chrono::seconds(1)));
    misses += !got.record;
    benchmark::DoNotOptimize(got);
  }
  state.counters["misses"] = static_cast<double>(misses);
}

void RawLmdbGetCopyHash(benchmark::State& state) {
  Stored& s = stored();
  std::mt19937 random(1);
  for (auto _ : state) {
    const Key key = key_of(random() % entries());
    MDB_txn* txn = nullptr;
    mdb_txn_begin(s.raw, nullptr, MDB_RDONLY, &txn);
    MDB_val at{sizeof key, const_cast<Key*>(&key)}, value{};
    mdb_get(txn, s.dbi, &at, &value);
    const std::string image(static_cast<const char*>(value.mv_data), value.mv_size);
    mdb_txn_abort(txn);
    benchmark::DoNotOptimize(base::hash64(image));
  }
}

/// A read in a store that is three quarters full. The use is also noted in the table of recent uses.
void StoreGetThatIsNoted(benchmark::State& state) {
  cache::create_recent_uses(cache::StoreFile(stored().dir.path(), true));
  std::this_thread::sleep_for(std::chrono::seconds(2));  // the store looks for an absent table once a second
  StoreGet(state);
}

BENCHMARK(RawLmdbGetCopyHash);
BENCHMARK(StoreGet);
BENCHMARK(StoreGet)->Threads(2)->UseRealTime();
BENCHMARK(StoreGetThatIsNoted);

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "scale") {
    kiln::bench::run_scale();
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
