// The cost of a launch through kiln over the bare cuLaunchKernelEx, in one process. Together get, geometry
// and launch may take 50 ns over it on the fake driver, which does nothing.
//
//   launch_bench                    times, interleaved: median and p99 of batches, and the time over the
//                                   floor.
//   launch_bench --instructions     instructions per call by callgrind, which it starts on itself.
//   launch_bench --calls WHAT N     N calls of one row, for a profiler
//
// The driver is KILN_LIBCUDA's, or the machine's, or the fake driver of this build, in this order. The
// fake driver does nothing here (kiln_fake_quiet). A real driver launches empty and small kernels, and
// each batch ends in a wait that is not timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/launch_rows.hpp"

namespace {

using namespace kiln::bench;
using Clock = std::chrono::steady_clock;

constexpr int kBatch = 256;  // calls between two reads of the clock; they fit a stream's queue

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

/// Calls per second of all threads together, waits included.
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

/// Gathers the repetitions; the program prints the table at the end.
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

/// Counts instructions with callgrind on this program: the difference between 2N calls and N calls.
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
              kiln::toolchain::device_facts(*world().driver, 0).name.c_str());
  Table table;
  benchmark::RunSpecifiedBenchmarks(&table);
}
