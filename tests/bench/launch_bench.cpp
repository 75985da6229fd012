// What a launch through kiln costs beside the bare cuLaunchKernelEx, in one process (DESIGN 10: get +
// geometry
// + launch at most 50 ns over it on the no-op fake driver).
//
//   launch_bench                    times, interleaved: median and p99 of batches, and what is over the floor
//   launch_bench --instructions     instructions per call by callgrind, which it starts on itself
//   launch_bench --calls WHAT N     N calls of one row, for a profiler
//
// The driver is KILN_LIBCUDA's, else the machine's, else the fake one of this build. The fake does nothing
// here (kiln_fake_quiet); a real one launches empty and small kernels, and each batch ends in a wait that is
// not timed.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/file.hpp"
#include "kiln/kiln.hpp"
#include "toolchain/driver.hpp"

namespace {

using namespace kiln;
using Clock = std::chrono::steady_clock;

constexpr int kBatch = 256;  // calls between two looks at the clock; fits a stream's queue
constexpr int kThreads = 8;

struct World {
  base::TempDir cache{"kiln-launch-bench-"};
  const toolchain::Driver* driver = nullptr;
  bool fake = false;
  toolchain::CUcontext context = nullptr;
  std::unique_ptr<Service> service;
  std::unique_ptr<KernelTemplate> rms_norm_template;
  Kernel empty, rms_norm, act_and_mul, softmax;
  CUstream streams[kThreads] = {};
  void *out = nullptr, *in = nullptr, *weight = nullptr;

  World() {
    driver = find_driver();
    driver->check(driver->cuInit(0), "cuInit");
    driver->check(driver->cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    use_context();
    for (CUstream& stream : streams) driver->check(driver->cuStreamCreate(&stream, 1), "cuStreamCreate");
    for (void** buffer : {&out, &in, &weight}) {
      toolchain::CUdeviceptr address = 0;
      driver->check(driver->cuMemAlloc(&address, 1 << 20), "cuMemAlloc");
      driver->check(driver->cuMemsetD8(address, 0, 1 << 20), "cuMemsetD8");
      *buffer = reinterpret_cast<void*>(address);
    }
    Options options = Options::hermetic();
    options.cache_dir = cache.path();
    const std::string templates = KILN_SOURCE_DIR "/templates";
    if (std::filesystem::exists(templates)) options.template_path = templates;
    if (const char* home = std::getenv("KILN_CUDA_HOME")) options.cuda_home = home;
    if (const char* worker = std::getenv("KILN_WORKER")) options.worker = worker;
    service = std::make_unique<Service>(options);
    service->add_template(
        "format = 1\n[template]\nname = \"empty\"\nsource = \"empty.cu\"\ninstantiate = \"empty<{N}>\"\n"
        "[param.N]\nkind = \"int\"\nrange = [1, 9]\ndefault = 1\n[launch]\ngrid = [\"1\"]\nblock = "
        "[\"32\"]\n",
        "template <int N> __global__ void empty() {}");
    empty = service->open("empty").get();
    rms_norm_template = std::make_unique<KernelTemplate>(service->open("rms_norm"));
    rms_norm = rms_norm_template->get(Dtype::bf16, 4096);
    act_and_mul = service->open("act_and_mul").get(Dtype::bf16, 4096);
    softmax = service->open("softmax").get(Dtype::f32, 32000);
    if (!fake) return;
    const auto quiet = reinterpret_cast<void (*)(int)>(control("kiln_fake_quiet"));
    quiet(1);
  }
  void use_context() const { driver->check(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent"); }
  void wait(int thread) const {
    if (!fake) driver->check(driver->cuStreamSynchronize(streams[thread]), "cuStreamSynchronize");
  }

 private:
  static void* control(const char* name) {
    const char* path = std::getenv("KILN_LIBCUDA");
    void* library = path ? ::dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    return library ? ::dlsym(library, name) : nullptr;
  }
  const toolchain::Driver* find_driver() {
    if (!std::getenv("KILN_LIBCUDA") && !::dlopen("libcuda.so.1", RTLD_NOW))
      ::setenv("KILN_LIBCUDA", KILN_FAKE_CUDA, 1);
    const toolchain::Driver* found = toolchain::Driver::get();
    if (!found) {
      std::fprintf(stderr, "not measured: %s\n", toolchain::Driver::load_error().c_str());
      std::exit(77);
    }
    fake = control("kiln_fake_quiet") != nullptr;
    return found;
  }
};

World& world() {
  static World it;
  return it;
}

/// A launch of `kernel` as an engine would make it by hand: everything prepared, one driver call.
struct Bare {
  toolchain::CUfunction function;
  toolchain::LaunchConfig config;
  toolchain::LaunchAttribute pdl;
  void *out = world().out, *in = world().in, *weight = world().weight, *null = nullptr;
  std::int32_t rows = 1;
  std::int64_t stride = 4096;
  float eps = 1e-6f;
  void* parameters[10] = {&out, &in, &weight, &rows, &stride, &stride, &eps, &null, &stride, &null};

  Bare(const Kernel& kernel, unsigned block, bool with_pdl, int thread) : function(kernel.function()) {
    config.block_x = block;
    config.stream = world().streams[thread];
    pdl.id = toolchain::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    pdl.value.value = 1;
    if (with_pdl) config.attributes = &pdl, config.attribute_count = 1;
  }
  void operator()() {
    if (world().driver->cuLaunchKernelEx(&config, function, parameters, nullptr) != 0) std::abort();
  }
};

using Call = std::function<void(int calls, int thread)>;
struct Row {
  std::string name, floor;
  Call call;
};

// Each body is a loop of its own, so that the call under test is inlined as in a program of a user.
#define KILN_LOOP(statement) \
  for (int i = 0; i < calls; ++i) statement

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"bare_empty", "",
       [](int calls, int t) {
         Bare launch(world().empty, 32, false, t);
         KILN_LOOP(launch());
       }},
      {"bare", "",
       [](int calls, int t) {
         Bare launch(world().rms_norm, 256, true, t);
         KILN_LOOP(launch());
       }},
      {"raw", "bare",
       [](int calls, int t) {
         Bare by_hand(world().rms_norm, 256, true, t);
         LaunchConfig config;
         config.block[0] = 256, config.pdl = 1, config.stream = by_hand.config.stream;
         KILN_LOOP(world().rms_norm.launch(config, by_hand.parameters));
       }},
      {"empty", "bare_empty",
       [](int calls, int t) {
         const Kernel k = world().empty;
         const CUstream s = world().streams[t];
         KILN_LOOP(k(s));
       }},
      {"rms_norm", "bare",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.rms_norm;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, w.weight, 1, std::int64_t{4096}, std::int64_t{4096}, 1e-6f));
       }},
      {"rms_norm_eight_rows", "bare",
       [](int calls, int t) {  // each [[require]] is worked out to its end
         World& w = world();
         const Kernel k = w.rms_norm;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, w.weight, 8, std::int64_t{4096}, std::int64_t{4096}, 1e-6f));
       }},
      {"rms_norm_converted", "bare",
       [](int calls, int t) {  // size_t for i32, int for i64, double for f32
         World& w = world();
         const Kernel k = w.rms_norm;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, w.weight, std::size_t{1}, 4096, 4096, 1e-6));
       }},
      {"act_and_mul", "bare",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.act_and_mul;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, 1, std::int64_t{8192}, std::int64_t{4096}));
       }},
      {"softmax", "bare",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.softmax;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, 1, std::int64_t{32000}, std::int64_t{32000}));
       }},
      {"get_rms_norm", "bare",
       [](int calls, int t) {
         World& w = world();
         const KernelTemplate opened = *w.rms_norm_template;
         const CUstream s = w.streams[t];
         KILN_LOOP(opened.get(Dtype::bf16, 4096)(s, w.out, w.in, w.weight, 1, std::int64_t{4096},
                                                 std::int64_t{4096}, 1e-6f));
       }},
  };
  return all;
}

void measure(benchmark::State& state, const Row& row) {
  const int thread = state.thread_index();
  world().use_context();
  row.call(kBatch, thread);
  world().wait(thread);
  for (auto _ : state) {
    const auto start = Clock::now();
    row.call(kBatch, thread);
    const auto end = Clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - start).count());
    world().wait(thread);
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}

/// All threads together, waits included: calls per second.
void measure_rate(benchmark::State& state, const Row& row) {
  const int thread = state.thread_index();
  world().use_context();
  for (auto _ : state) {
    row.call(kBatch, thread);
    world().wait(thread);
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0
                   : v[std::min(v.size() - 1, static_cast<std::size_t>(q * static_cast<double>(v.size())))];
}

/// Gathers the repetitions; the table comes at the end.
class Table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      const double items = run.counters.at("items_per_second");
      (run.threads > 1 ? rates_ : ns_)[run.run_name.function_name].push_back(run.threads > 1 ? items
                                                                                             : 1e9 / items);
    }
  }
  void Finalize() override {
    std::printf("%-20s %10s %10s %14s\n", "ns per call", "median", "p99", "over the floor");
    for (const Row& row : rows()) {
      const auto& mine = ns_[row.name];
      if (mine.empty()) continue;
      std::printf("%-20s %10.1f %10.1f", row.name.c_str(), quantile(mine, 0.5), quantile(mine, 0.99));
      if (!row.floor.empty() && !ns_[row.floor].empty())
        std::printf(" %+13.1f", quantile(mine, 0.5) - quantile(ns_[row.floor], 0.5));
      std::puts("");
    }
    if (std::thread::hardware_concurrency() < kThreads)
      return void(std::printf("\n%d threads on %d streams: not measured, there are %u processors\n", kThreads,
                              kThreads, std::thread::hardware_concurrency()));
    if (rates_.empty()) return;
    std::printf("\n%-20s %10s   (%d threads on %d streams)\n", "calls per us", "median", kThreads, kThreads);
    for (const Row& row : rows())
      if (const auto found = rates_.find(row.name); found != rates_.end())
        std::printf("%-20s %10.2f\n", row.name.c_str(), quantile(found->second, 0.5) / 1e6);
  }

 private:
  std::map<std::string, std::vector<double>> ns_, rates_;
};

/// callgrind on this program: what 2N calls take beyond N.
int count_instructions(const char* self) {
  const auto total = [&](const std::string& what, int calls) {
    const std::string command =
        "valgrind --tool=callgrind --callgrind-out-file=/dev/null --trace-children=no "
        "--toggle-collect='*counted_calls*' '" +
        std::string(self) + "' --calls " + what + ' ' + std::to_string(calls) + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    long long collected = -1;
    for (char line[512]; pipe && std::fgets(line, sizeof line, pipe);)
      if (const char* at = std::strstr(line, "Collected : ")) collected = std::atoll(at + 12);
    if (!pipe || ::pclose(pipe) != 0) collected = -1;
    return collected;
  };
  std::map<std::string, double> per_call;
  for (const Row& row : rows()) {
    const long long one = total(row.name, 1000), two = total(row.name, 2000);
    if (one < 0 || two < 0) {
      std::fprintf(stderr, "not measured: valgrind is missing or cannot run this program\n");
      return 77;
    }
    per_call[row.name] = static_cast<double>(two - one) / 1000;
    std::printf("%-20s %8.0f instructions", row.name.c_str(), per_call[row.name]);
    if (!row.floor.empty())
      std::printf(" %+8.0f over %s", per_call[row.name] - per_call[row.floor], row.floor.c_str());
    std::puts("");
    std::fflush(stdout);
  }
  return 0;
}

__attribute__((noinline)) void counted_calls(const Row& row, int calls) { row.call(calls, 0); }

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--instructions") return count_instructions(argv[0]);
  if (first == "--calls" && argc == 4) {
    for (const Row& row : rows()) {
      if (row.name != argv[2]) continue;
      row.call(1, 0);
      counted_calls(row, std::atoi(argv[3]));
      world().wait(0);
    }
    return 0;
  }
  for (const Row& row : rows()) {
    benchmark::RegisterBenchmark(row.name.c_str(), measure, row)
        ->UseManualTime()
        ->MinTime(0.002)
        ->Repetitions(100);
    if (std::thread::hardware_concurrency() < kThreads) continue;
    if (row.name.rfind("bare", 0) == 0 || row.name == "empty" || row.name == "rms_norm" ||
        row.name == "get_rms_norm")
      benchmark::RegisterBenchmark(row.name.c_str(), measure_rate, row)
          ->Threads(kThreads)
          ->UseRealTime()
          ->MinTime(0.02)
          ->Repetitions(11);
  }
  std::vector<char*> arguments(argv, argv + argc);
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  arguments.insert(arguments.begin() + 1, interleave.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  std::printf("%s driver, %s\n\n", world().fake ? "no-op fake" : "real",
              toolchain::device_facts(*world().driver, 0).name.c_str());
  Table table;
  benchmark::RunSpecifiedBenchmarks(&table);
}
