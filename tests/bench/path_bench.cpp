// The one path against its floors, as ratios inside one process (DESIGN 10).
//
//   path_bench                 all of it
//   path_bench compile [N]     cold compile through a warm worker over raw NVRTC in this process, same text,
//   interleaved path_bench first           the warm first kernel of a fresh process, split into its parts;
//   with a GPU also loading
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "compile/nvrtc_program.hpp"
#include "runtime/service.hpp"
#include "toolchain/nvrtc.hpp"

using namespace kiln;
using Clock = std::chrono::steady_clock;

namespace {

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

Options bench_options(const std::string& cache) {
  Options o;
  o.cache_dir = cache;
  namespace fs =
      std::filesystem;  // run from a copy of the tree, the fixtures are found from the working directory
  const std::string fixtures = KILN_SOURCE_DIR "/tests/fixtures/templates";
  o.template_path = fs::exists(fixtures) ? fixtures : fs::absolute("tests/fixtures/templates").string();
  return o;
}

source::Instantiation instantiate(runtime::Service& service, const std::string& name,
                                  const std::vector<Value>& values) {
  auto& opened = service.open(name, KILN_DEVICE_NONE, "sm_90a");
  return source::instantiate(opened.shared_origin(),
                             source::resolve(opened.origin().manifest, values, base::Arch{90}));
}

/// What somebody would write by hand: the text, the include path, the name expression; nothing of kiln's.
double raw_nvrtc_ms(const toolchain::Nvrtc& nvrtc, const source::Instantiation& unit) {
  const auto start = Clock::now();
  toolchain::nvrtcProgram program = nullptr;
  nvrtc.CreateProgram(&program, unit.source.c_str(), "kernel.cu", 0, nullptr, nullptr);
  nvrtc.AddNameExpression(program, unit.name_expression.c_str());
  std::vector<std::string> options{"--gpu-architecture=sm_90a", "--no-cache", "-I" + unit.origin->directory};
  options.insert(options.end(), unit.options.begin(), unit.options.end());
  std::vector<const char*> raw;
  for (const auto& o : options) raw.push_back(o.c_str());
  nvrtc.check(nvrtc.CompileProgram(program, static_cast<int>(raw.size()), raw.data()), "nvrtcCompileProgram");
  std::size_t size = 0;
  nvrtc.GetCUBINSize(program, &size);
  std::string image(size, '\0');
  nvrtc.GetCUBIN(program, image.data());
  nvrtc.DestroyProgram(&program);
  return ms_since(start);
}

void bench_compile(int repeats) {
  const base::TempDir cache("kiln-bench-");
  runtime::Service service(bench_options(cache.path()));
  const auto& toolkit = service.pipeline().toolkit();
  if (!toolkit.has_compiler()) {
    std::puts("compile: no NVRTC on this machine, not measured");
    return;
  }
  const auto& nvrtc = toolchain::Nvrtc::load(toolkit.nvrtc, toolkit.nvrtc_builtins);
  std::vector<double> kiln_ms, raw_ms, ratios;
  for (int i = -2; i < repeats; ++i) {  // two warm-ups: worker and library
    const auto unit = instantiate(service, "rms_norm", {Dtype::bf16, 1024 + 8 * (i + 2)});
    double ours = 0, raw = 0;
    const auto run_kiln = [&] {
      const auto start = Clock::now();
      if (service.pipeline().obtain(unit, {}).outcome != Outcome::compiled) std::puts("not cold");
      ours = ms_since(start);
      service.pipeline().flush();
    };
    if (i % 2 == 0)
      run_kiln(), raw = raw_nvrtc_ms(nvrtc, unit);
    else
      raw = raw_nvrtc_ms(nvrtc, unit), run_kiln();
    if (i < 0) continue;
    kiln_ms.push_back(ours), raw_ms.push_back(raw), ratios.push_back(ours / raw);
  }
  std::printf(
      "cold compile of rms_norm, %d interleaved pairs: kiln %.1f ms, raw NVRTC %.1f ms, median ratio %.3f "
      "(budget 1.05)\n",
      repeats, median(kiln_ms), median(raw_ms), median(ratios));
}

using Parts = std::vector<std::pair<std::string, double>>;

/// One child: the steps of the warm path, in order.
Parts first_kernel(const std::string& cache, const std::string& name, const std::vector<Value>& values) {
  Parts parts;
  const toolchain::Driver* driver = toolchain::Driver::get();
  toolchain::CUcontext context = nullptr;
  const bool gpu = driver && driver->cuInit(0) == 0 && driver->cuDevicePrimaryCtxRetain(&context, 0) == 0 &&
                   driver->cuCtxSetCurrent(context) == 0;
  const auto begin = Clock::now();
  auto last = begin;
  const auto mark = [&](const char* part) {
    parts.emplace_back(part, ms_since(last));
    last = Clock::now();
  };
  runtime::Service service(bench_options(cache));
  mark("service");
  auto& opened = service.open(name, gpu ? KILN_DEVICE_CURRENT : KILN_DEVICE_NONE, "");
  mark("open: manifest");
  service.pipeline().toolkit();
  mark("find toolkit");
  service.pipeline().store();
  mark("open store");
  if (gpu)
    opened.get(values, {});
  else
    opened.compile(values);
  mark(gpu ? "scan, key, read, load" : "scan, key, read");
  parts.emplace_back("total", ms_since(begin));
  return parts;
}

void bench_first(const char* self) {
  const base::TempDir cache("kiln-bench-");
  const std::vector<std::pair<std::string, std::string>> asks = {
      {"rms_norm", "4096"}, {"vendor_scale", "3"}, {"cub_block_sum", "1024"}};
  for (const auto& [name, n] : asks) {
    std::map<std::string, std::vector<double>> times;
    std::vector<std::string> order;
    for (int i = 0; i < 22; ++i) {  // the first fills the cache
      const std::string command = std::string(self) + " child " + cache.path() + ' ' + name + ' ' + n;
      FILE* pipe = ::popen(command.c_str(), "r");
      char part[64];
      double ms = 0;
      while (std::fscanf(pipe, "%63[^=]=%lf\n", part, &ms) == 2) {
        if (i == 1) order.emplace_back(part);
        if (i > 0) times[part].push_back(ms);
      }
      if (::pclose(pipe) != 0) {
        std::printf("first kernel of %s: not measured\n", name.c_str());
        break;
      }
    }
    if (order.empty()) continue;
    std::printf(
        "first %s of a fresh process from disk, median of 21 (budget 1 ms slim and vendor, 4 ms CUB):",
        name.c_str());
    for (const auto& part : order) std::printf("  %s %.3f", part.c_str(), median(times[part]));
    std::puts(" ms");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  if (what == "child" && argc == 5) {
    try {
      for (const auto& [part, ms] : first_kernel(argv[2], argv[3], {Dtype::bf16, std::stoi(argv[4])}))
        std::printf("%s=%.6f\n", part.c_str(), ms);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    return 0;
  }
  if (what == "all" || what == "compile") bench_compile(argc > 2 ? std::stoi(argv[2]) : 41);
  if (what == "all" || what == "first") bench_first(argv[0]);
}
