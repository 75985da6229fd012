// `get` on a ready kernel against bare hash tables, in one process. `bare_table` is the smallest table that
// finds a pointer by two numbers. `ready_table` is the runtime's own table alone.
//
//   get_bench [--benchmark_filter=...]   prints ns per call, the mean of the run
//
// p50 and p99 are over batches of 32 calls. Each batch includes the cost
// of reading the clock, about 1 ns per call.
//
// The template is rms_norm with one real kernel, entered under as many parameters as a case needs. So the
// public API is measured over the runtime's own table. Needs a driver; a fake one is enough (KILN_LIBCUDA).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/file.hpp"
#include "kiln/kiln.hpp"
#include "runtime/kernels/kernel_template.hpp"
#include "runtime/kernels/kernel_template_probe.hpp"
#include "tests/support/places.hpp"
#include "toolchain/driver.hpp"

namespace {

using namespace kiln;
using Clock = std::chrono::steady_clock;

constexpr int kBatch = 32;
constexpr std::int64_t kFirst = 1 << 20;  // a value that no real H has

runtime::PackedParameters parameters_of(std::int64_t h) {
  runtime::PackedParameters p;
  const std::int64_t values[] = {static_cast<std::int64_t>(Dtype::bf16), h};
  p.set(values, 2);
  return p;
}

/// The smallest table that finds a kernel by two numbers: no types, no defaults, no other thread.
class BareTable {
 public:
  explicit BareTable(std::int64_t count) : mask_(std::bit_ceil(static_cast<std::uint64_t>(count) * 2) - 1) {
    slots_.resize(mask_ + 1);
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint64_t at = hash(1, kFirst + i);
      while (slots_[at & mask_].kernel) ++at;
      slots_[at & mask_] = {1, kFirst + i, this};
    }
  }
  const void* find(std::int64_t a, std::int64_t b) const noexcept {
    for (std::uint64_t at = hash(a, b);; ++at) {
      const Slot& slot = slots_[at & mask_];
      if (slot.a == a && slot.b == b) return slot.kernel;
      if (!slot.kernel) return nullptr;
    }
  }

 private:
  struct Slot {
    std::int64_t a = 0, b = 0;
    const void* kernel = nullptr;
  };
  static std::uint64_t hash(std::int64_t a, std::int64_t b) noexcept {
    std::uint64_t x =
        (static_cast<std::uint64_t>(a) << 56 ^ static_cast<std::uint64_t>(b)) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 32;
  }
  std::uint64_t mask_;
  std::vector<Slot> slots_;
};

/// A service with `count` ready entries of one template, and the order in which the bench requests them.
struct Ready {
  explicit Ready(std::int64_t count) : bare(count) {
    kernel = opened.get(Dtype::bf16, 4096);
    for (std::int64_t i = 0; i < count; ++i) enter(kFirst + i);
    order.resize(1 << 17);
    std::mt19937_64 random(1);
    for (auto& h : order)
      h = kFirst + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  }
  void enter(std::int64_t h) {
    runtime::KernelTemplateProbe::enter(*reinterpret_cast<runtime::KernelTemplate*>(opened.handle()),
                                        parameters_of(h),
                                        reinterpret_cast<const runtime::LoadedKernel*>(kernel.handle()));
  }
  static Options options(const std::string& cache) {
    Options o = Options::hermetic();
    o.cache_dir = cache;
    return o;
  }
  base::TempDir cache{"kiln-get-bench-"};
  Service service{options(cache.path())};
  KernelTemplate opened = service.open("rms_norm");
  Kernel kernel;
  BareTable bare;
  std::vector<std::int64_t> order;
};

Ready& ready(std::int64_t count) {
  static std::mutex mutex;
  static std::vector<std::pair<std::int64_t, std::unique_ptr<Ready>>> all;
  const std::lock_guard lock(mutex);
  for (auto& [n, it] : all)
    if (n == count) return *it;
  return *all.emplace_back(count, std::make_unique<Ready>(count)).second;
}

/// Makes batches of calls, one for each element of `order`. Each
/// thread starts at a different place in `order`.
template <class Call>
void measure(benchmark::State& state, const std::vector<std::int64_t>& order, Call&& call) {
  std::vector<float> samples;
  samples.reserve(1 << 16);
  std::size_t at = static_cast<std::size_t>(state.thread_index()) * 7919 * kBatch % order.size();
  while (state.KeepRunningBatch(kBatch)) {
    const auto begin = Clock::now();
    for (int i = 0; i < kBatch; ++i) call(order[at + static_cast<std::size_t>(i)]);
    const float ns = std::chrono::duration<float, std::nano>(Clock::now() - begin).count() / kBatch;
    if (samples.size() < samples.capacity()) samples.push_back(ns);
    at = (at + kBatch) % order.size();
  }
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](double q) {
    return samples[static_cast<std::size_t>(q * double(samples.size() - 1))];
  };
  state.counters["p50"] = benchmark::Counter(quantile(0.5), benchmark::Counter::kAvgThreads);
  state.counters["p99"] = benchmark::Counter(quantile(0.99), benchmark::Counter::kAvgThreads);
}

void get(benchmark::State& state) {
  Ready& r = ready(state.range(0));
  const KernelTemplate opened = r.opened;
  measure(state, r.order,
          [&](std::int64_t h) { benchmark::DoNotOptimize(opened.get(Dtype::bf16, h).handle()); });
}
void try_get(benchmark::State& state) {
  Ready& r = ready(state.range(0));
  const KernelTemplate opened = r.opened;
  measure(state, r.order,
          [&](std::int64_t h) { benchmark::DoNotOptimize(opened.try_get(Dtype::bf16, h).handle()); });
}
void get_by_name(benchmark::State& state) {
  Ready& r = ready(state.range(0));
  const KernelTemplate opened = r.opened;
  measure(state, r.order, [&](std::int64_t h) {
    benchmark::DoNotOptimize(opened.get({{"T", Dtype::bf16}, {"H", h}}).handle());
  });
}
/// One more thread inserts all the time, so the table grows while the readers read.
void get_while_inserting(benchmark::State& state) {
  static std::atomic<bool> stop;
  static std::thread writer;
  Ready& r = ready(state.range(0));
  if (state.thread_index() == 0) {
    stop = false;
    writer = std::thread([&r] {
      static std::int64_t next = kFirst + (1 << 24);
      for (const std::int64_t end = next + 2'000'000; next < end && !stop; ++next) r.enter(next);
    });
  }
  get(state);
  if (state.thread_index() == 0) {
    stop = true;
    writer.join();
  }
}
void bare_table(benchmark::State& state) {
  Ready& r = ready(state.range(0));
  measure(state, r.order, [&](std::int64_t h) { benchmark::DoNotOptimize(r.bare.find(1, h)); });
}

/// The runtime's own table without API, types and defaults: XXH3 over the parameters, compared in full.
void ready_table(benchmark::State& state) {
  Ready& r = ready(state.range(0));
  static runtime::ReadyTable table;
  static const bool filled = [&] {
    for (std::int64_t i = 0; i < 100'000; ++i)
      table.insert(parameters_of(kFirst + i), reinterpret_cast<const runtime::LoadedKernel*>(&r));
    return true;
  }();
  benchmark::DoNotOptimize(filled);
  measure(state, r.order,
          [&](std::int64_t h) { benchmark::DoNotOptimize(table.find_few(parameters_of(h))); });
}

/// A miss after the seal, for a specialisation that was missed before.
void sealed_miss(benchmark::State& state) {
  Options o = Options::hermetic();
  o.mode = Mode::sealed;
  const base::TempDir cache("kiln-get-bench-");
  o.cache_dir = cache.path();
  Service service(o);
  const KernelTemplate opened = service.open("rms_norm");
  service.seal();
  const kiln_value values[] = {{KILN_VALUE_DTYPE, 0, 2, nullptr}, {KILN_VALUE_INTEGER, 0, 4096, nullptr}};
  const kiln_kernel* out = nullptr;
  for (auto _ : state)
    benchmark::DoNotOptimize(kiln_template_get(opened.handle(), nullptr, values, 2, nullptr, &out));
}

void all(benchmark::internal::Benchmark* b) {
  for (const std::int64_t count : {1, 64, 1000, 100'000}) b->Arg(count);
  b->UseRealTime();
}
BENCHMARK(bare_table)->Apply(all);
BENCHMARK(sealed_miss)->UseRealTime();
BENCHMARK(ready_table)->Arg(100'000)->UseRealTime();
BENCHMARK(get)->Apply(all);
BENCHMARK(try_get)->Apply(all);
BENCHMARK(get_by_name)->Arg(64)->UseRealTime();
BENCHMARK(get)
    ->Name("get_threads")
    ->Arg(1)
    ->Arg(64)
    ->Arg(1000)
    ->Arg(100'000)
    ->ThreadRange(1, 16)
    ->UseRealTime();
BENCHMARK(bare_table)->Name("bare_threads")->Arg(64)->Arg(100'000)->ThreadRange(1, 16)->UseRealTime();
BENCHMARK(get_while_inserting)->Arg(64)->Arg(100'000)->Threads(1)->Threads(4)->Threads(15)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  ::setenv("KILN_LIBCUDA", kiln::places::kFakeCuda, 0);
  const toolchain::Driver* driver = toolchain::Driver::get();
  toolchain::CUcontext context = nullptr;
  if (!driver || driver->cuInit(0) != 0 || driver->cuDevicePrimaryCtxRetain(&context, 0) != 0 ||
      driver->cuCtxSetCurrent(context) != 0) {
    std::printf("get: no driver (%s), not measured\n", toolchain::Driver::load_error().c_str());
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
