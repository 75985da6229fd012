// The one path against its floors, as ratios inside one process.
//
//   path_bench                 everything below.
//   path_bench compile [N]     cold compile through a warm worker over raw NVRTC in this process: same text,
//                              interleaved.
//   path_bench first [N]       the warm first kernel of a fresh process, split into its parts
//
// With a GPU, `first` includes loading. It also prints how much longer the process takes to end than a
// process that only opens driver and context, from the end of main until it is reaped.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "compile/backend/nvrtc/program.hpp"
#include "runtime/service/service.hpp"
#include "tests/support/places.hpp"
#include "toolchain/nvrtc.hpp"

extern char** environ;

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
  namespace fs = std::filesystem;  // a run from a copy of the tree finds the fixtures in its directory
  const std::string fixtures = std::string(kiln::places::kSourceDirectory) + "/tests/fixtures/templates";
  o.template_path = fs::exists(fixtures) ? fixtures : fs::absolute("tests/fixtures/templates").string();
  return o;
}

source::Instantiation instantiate(runtime::Service& service, const std::string& name,
                                  const std::vector<Value>& values) {
  auto& opened = service.open(name, KILN_DEVICE_NONE, "sm_90a");
  return source::instantiate(opened.shared_origin(),
                             source::resolve(opened.origin().manifest, values, base::Arch{90}));
}

/// Hand-written code without kiln: the text, the include path, the name expression.
double raw_nvrtc_ms(const toolchain::Nvrtc& nvrtc, const source::Instantiation& unit) {
  const auto start = Clock::now();
  toolchain::nvrtcProgram program = nullptr;
  nvrtc.CreateProgram(&program, unit.source.c_str(), "kernel.cu", 0, nullptr, nullptr);
  nvrtc.AddNameExpression(program, unit.name_expression.c_str());
  std::vector<std::string> options{"--gpu-architecture=sm_90a", "--no-cache", "-I" + unit.origin->root};
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
  const auto& toolkit = service.core().state().files.toolkit();
  if (!toolkit.has_compiler()) {
    std::puts("compile: no NVRTC on this machine, not measured");
    return;
  }
  const auto& nvrtc = toolchain::Nvrtc::load(toolkit.compiler.library, toolkit.compiler.builtins);
  std::vector<double> kiln_ms, raw_ms, ratios;
  for (int i = -2; i < repeats; ++i) {  // two warm-ups: worker and library
    const auto unit = instantiate(service, "rms_norm", {Dtype::bf16, 1024 + 8 * (i + 2)});
    double ours = 0, raw = 0;
    const auto run_kiln = [&] {
      const auto start = Clock::now();
      if (service.core().path().obtain(unit, {}).outcome != Outcome::compiled) std::puts("not cold");
      ours = ms_since(start);
      service.core().path().flush();
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
constexpr const char* kEnd = "end of main";              // a point in time, by the machine's steady clock
constexpr const char* kClosing = "closing the service";  // its time, after kEnd

double now_ms() { return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count(); }

/// Opens the driver and a context. Returns false where there is no GPU.
bool open_driver() {
  const toolchain::Driver* driver = toolchain::Driver::get();
  toolchain::CUcontext context = nullptr;
  return driver && driver->cuInit(0) == 0 && driver->cuDevicePrimaryCtxRetain(&context, 0) == 0 &&
         driver->cuCtxSetCurrent(context) == 0;
}

/// One child: the steps of the warm path, in order. With `split` the loading in the last step is measured
/// apart, with a second call for the same image. So the total of such a child is not that of a first kernel.
void first_kernel(Parts& parts, const std::string& cache, const std::string& name,
                  const std::vector<Value>& values, bool split) {
  const bool gpu = open_driver();
  const Options options = bench_options(cache);
  const auto begin = Clock::now();
  auto last = begin;
  const auto mark = [&](const char* part) {
    parts.emplace_back(part, ms_since(last));
    last = Clock::now();
  };
  auto service = std::make_unique<runtime::Service>(options);
  mark("service");
  auto& opened = service->open(name, gpu ? KILN_DEVICE_CURRENT : KILN_DEVICE_NONE, "");
  mark("open: manifest");
  service->core().state().files.toolkit();
  mark("find toolkit");
  service->core().state().stores.writable();
  mark("open store");
  if (gpu && split) {
    parts.clear();
    opened.compile(values);
    mark("of these: scan, key, read");
    opened.compile(values);
    const double again = ms_since(last);
    last = Clock::now();
    opened.get(values, {});
    parts.emplace_back("load", ms_since(last) - again);
  } else if (gpu) {
    opened.get(values, {});
    mark("scan, key, read, load");
    parts.emplace_back("total", ms_since(begin));
  } else {
    opened.compile(values);
    mark("scan, key, read");
    parts.emplace_back("total", ms_since(begin));
  }
  parts.emplace_back(kEnd, now_ms());
  last = Clock::now();
  service.reset();
  mark(kClosing);
}

/// Starts a child with these arguments and returns the parts that it prints. `kEnd` becomes the time from
/// that point until the child is reaped. Empty when the child failed.
Parts run_child(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  base::Fd reading(ends[0]), writing(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed) return {};
  writing.reset();
  int status = 0;  // the child's output fits the pipe, so it cannot block
  ::waitpid(pid, &status, 0);
  const double reaped = now_ms();
  Parts parts;
  FILE* said = ::fdopen(reading.release(), "r");
  char part[64];
  double ms = 0;
  while (std::fscanf(said, "%63[^=]=%lf\n", part, &ms) == 2)
    parts.emplace_back(part, std::string(part) == kEnd ? reaped - ms : ms);
  std::fclose(said);
  return status == 0 ? parts : Parts();
}

void bench_first(const char* self, int repeats) {
  const base::TempDir cache("kiln-bench-");
  const std::vector<std::pair<std::string, std::string>> asks = {
      {"rms_norm", "4096"}, {"vendor_scale", "3"}, {"cub_block_sum", "1024"}};
  for (const auto& [name, n] : asks) {
    std::map<std::string, std::vector<double>> times;
    std::vector<std::string> order;
    const auto note = [&](const Parts& parts) {
      for (const auto& [part, ms] : parts) {
        if (part == kEnd || part == kClosing) continue;
        if (times[part].empty()) order.push_back(part);
        times[part].push_back(ms);
      }
    };
    const auto part_of = [](const Parts& parts, std::string_view wanted) {
      return std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.first == wanted; })
          ->second;
    };
    std::vector<double> kiln_exit, closing, bare_exit;
    for (int i = -1; i < repeats; ++i) {  // the first run fills the cache
      const Parts parts = run_child({self, "child", cache.path(), name, n});
      if (parts.empty()) break;
      if (i < 0) continue;
      const Parts split = run_child({self, "split", cache.path(), name, n}), bare = run_child({self, "bare"});
      note(parts);
      if (split.size() == 4) note(split);  // only with a GPU
      kiln_exit.push_back(part_of(parts, kEnd));
      closing.push_back(part_of(parts, kClosing));
      if (!bare.empty()) bare_exit.push_back(bare.back().second);
    }
    if (order.empty() || bare_exit.empty()) {
      std::printf("first kernel of %s: not measured\n", name.c_str());
      continue;
    }
    std::printf(
        "first %s of a fresh process from disk, median of %d (budget 1 ms slim and vendor, 4 ms CUB):",
        name.c_str(), repeats);
    for (const auto& part : order) std::printf("  %s %.3f", part.c_str(), median(times[part]));
    const double with = median(kiln_exit), without = median(bare_exit);
    std::printf("  exit %.3f (bare %.3f, added %.3f; closing the service %.3f) ms\n", with, without,
                with - without, median(closing));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  const bool child = (what == "child" || what == "split") && argc == 5;
  if (child || what == "bare") {
    Parts parts;
    try {
      if (child)
        first_kernel(parts, argv[2], argv[3], {Dtype::bf16, std::stoi(argv[4])}, what == "split");
      else
        open_driver(), parts.emplace_back(kEnd, now_ms());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    for (const auto& [part, ms] : parts) std::printf("%s=%.6f\n", part.c_str(), ms);
    return 0;
  }
  if (what == "all" || what == "compile") bench_compile(argc > 2 ? std::stoi(argv[2]) : 41);
  if (what == "all" || what == "first") bench_first(argv[0], argc > 2 ? std::stoi(argv[2]) : 21);
}
