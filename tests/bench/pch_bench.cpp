// Measures precompiled headers: time with one over time without, interleaved, medians; the time to make one;
// and the host's own CPU time for each compile.
//
//   pch_bench [ROUNDS]           one worker, for a CUB template, one with vendor headers, a slim one
//   pch_bench jobs J [KERNELS]   a CUB template through J workers: kernels per second, with and without
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "closure/closure.hpp"
#include "compile/compiler/compiler.hpp"
#include "compile/compiler/header_reuse.hpp"
#include "library/work_lists.hpp"
#include "tests/support/places.hpp"
#include "toolchain/locate.hpp"

using namespace kiln;
using Clock = std::chrono::steady_clock;

namespace {

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double cpu_ms() {
  timespec t;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct Unit {
  source::Instantiation unit;
  source::Closure closure;
  compile::MadeKey made;
};

class Bench {
 public:
  Bench() : toolkit_(toolchain::locate_toolkit({})) {
    namespace fs = std::filesystem;
    // Absent in a copy: the working directory is used.
    const std::string here = kiln::places::kSourceDirectory;
    root_ = fs::exists(here) ? here : fs::current_path().string();
  }

  Unit prepare(const std::string& name, std::vector<Value> values) {
    source::Catalog catalog({root_ + "/tests/fixtures/templates", root_ + "/templates"}, {},
                            library::work_lists());
    auto origin = catalog.open(name);
    source::SearchPath search;
    search.project = {origin->root, root_ + "/templates"};
    search.toolkit = toolkit_.include_dirs;
    auto unit =
        source::instantiate(origin, source::resolve(origin->manifest, values, base::Arch::parse("sm_90a")));
    auto closure = source::scan_closure(unit.source, {}, search, scans_);
    auto made = compile::make_key(unit, closure, toolkit_);
    return {std::move(unit), std::move(closure), std::move(made)};
  }

  compile::Compiled compile_in(compile::WorkerPool& pool, const Unit& u,
                               compile::PrecompiledHeaders* headers) {
    return compile::compile({u.unit, u.closure, u.made, false, [] { return true; }}, toolkit_, pool, {},
                            headers);
  }

  void one(const std::string& name, const std::vector<std::vector<Value>>& values, int rounds) {
    compile::WorkerPool plain({.jobs = 1}), with({.jobs = 1});
    compile::HeaderSettings settings;
    settings.min_files = 1;
    settings.created_by = 1;
    settings.min_front_end = 0;
    compile::PrecompiledHeaders headers(settings);
    Unit u = prepare(name, values[0]);
    compile_in(plain, u, nullptr);
    compile_in(with, u, nullptr);  // warm
    auto start = Clock::now();
    compile_in(with, u, &headers);
    const double creating = ms_since(start);
    start = Clock::now();
    compile_in(with, u, &headers);
    const double proving = ms_since(start);
    std::vector<double> a, b, host_a, host_b, prepares, names, changes, reads;
    const auto timed = [&](std::vector<double>& into, const auto& what) {
      const double before = cpu_ms();
      what();
      into.push_back(cpu_ms() - before);
    };
    for (int i = 0; i < rounds; ++i) {
      timed(prepares, [&] { u = prepare(name, values[static_cast<std::size_t>(i) % values.size()]); });
      start = Clock::now();
      timed(host_a, [&] { compile_in(plain, u, nullptr); });
      a.push_back(ms_since(start));
      start = Clock::now();
      timed(host_b, [&] { compile_in(with, u, &headers); });
      b.push_back(ms_since(start));
      timed(changes, [&] { static_cast<void>(u.closure.changed()); });
      compile::WorkerRequest request;
      request.source = u.unit.source;
      timed(names, [&] { compile::header_name(request, u.closure, toolkit_, settings); });
      std::vector<std::string> list;
      for (const auto& file : u.closure.files) list.push_back(file.symbolic);
      timed(reads, [&] { compile::read_but_not_hashed(u.closure, list); });
    }
    const double base = median(a);
    std::printf(
        "%-14s %4zu files  with/without %.2f (%.0f / %.0f ms)  creating %.2f  proving+use %.2f  used %llu, "
        "%.0f MB\n",
        name.c_str(), u.closure.files.size(), median(b) / base, median(b), base, creating / base,
        proving / base, static_cast<unsigned long long>(headers.counts().used),
        static_cast<double>(headers.counts().held_bytes) / 1e6);
    std::printf(
        "%14s host CPU ms: compile() without %.2f, with %.2f; of it changed() %.2f, header_name %.2f, "
        "list check %.2f; prepare (warm scan cache, key) %.2f\n",
        "", median(host_a), median(host_b), median(changes), median(names), median(reads), median(prepares));
  }

  void jobs(int jobs, int kernels) {
    std::vector<Unit> units;
    const int threads[] = {128, 256, 512};
    for (int i = 0; i < kernels; ++i)
      units.push_back(prepare("cub_block_sum", {Dtype::bf16, 1024 + 16 * (i / 3), threads[i % 3]}));
    double rate[2] = {};
    for (const bool reuse : {false, true}) {
      compile::WorkerPool pool({.jobs = jobs});
      compile::PrecompiledHeaders headers;
      std::atomic<std::size_t> next{0};
      std::vector<std::thread> threads_of_bench;
      const auto start = Clock::now();
      for (int t = 0; t < jobs; ++t) {
        threads_of_bench.emplace_back([&] {
          for (std::size_t i; (i = next++) < units.size();)
            compile_in(pool, units[i], reuse ? &headers : nullptr);
        });
      }
      for (auto& thread : threads_of_bench) thread.join();
      rate[reuse] = 1000 * kernels / ms_since(start);
      std::printf(
          "%d workers, %d kernels, %s: %.1f kernels/s, %.2f host CPU ms each (all so far), used %llu\n", jobs,
          kernels, reuse ? "with" : "without", rate[reuse], cpu_ms() / kernels,
          static_cast<unsigned long long>(headers.counts().used));
    }
    std::printf("with over without: %.2f\n", rate[1] / rate[0]);
  }

 private:
  toolchain::Toolkit toolkit_;
  std::string root_;
  source::ScanCache scans_;
};

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Bench bench;
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  if (argc > 1 && std::string(argv[1]) == "jobs") {
    bench.jobs(number(2, 2), number(3, 60));
    return 0;
  }
  const int rounds = number(1, 11);
  bench.one("cub_block_sum", {{Dtype::bf16, 1024}, {Dtype::bf16, 4096}, {Dtype::bf16, 8192}}, rounds);
  bench.one("vendor_scale", {{Dtype::bf16, 7}, {Dtype::bf16, 9}}, rounds);
  bench.one("rms_norm", {{Dtype::bf16, 1024}, {Dtype::bf16, 4096}}, rounds);
}
