// One compile and its parts, and a fresh process up to its first launch.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/file.hpp"
#include "compile/pool/pool.hpp"
#include "compile_bench.hpp"
#include "kiln/error.hpp"
#include "toolchain/driver.hpp"

namespace kiln::bench {
namespace {

struct Parts {
  std::vector<double> warm, cold, raw, raw_process, spawn, load, frontend, nvvm, ptxas, around, publish;
};

double ms(Clock::time_point start) { return seconds_since(start) * 1e3; }

/// Measures two times. `spawn` ends with the worker's first answer, that there is no such library. `load`
/// ends with its second answer, that NVRTC, now loaded, has no such arch.
void time_worker(const toolchain::Toolkit& toolkit, const std::string& executable, Parts& parts) {
  compile::WorkerPool pool({.executable = executable, .jobs = 1});
  compile::WorkerRequest request;
  request.compiler.library = request.compiler.builtins = "/nonexistent/libnvrtc.so";
  auto start = Clock::now();
  pool.run(request, {});
  parts.spawn.push_back(ms(start));
  request.compiler = toolkit.compiler, request.arch = "sm_10";
  start = Clock::now();
  pool.run(request, {});
  parts.load.push_back(ms(start));
}

}  // namespace

std::string bench_single(const Kind& kind, int repeats) {
  const base::TempDir caches("kiln-bench-");
  runtime::Service service(bench_options(caches.path() + "/warm", 1));
  const auto& toolkit = service.core().state().files.toolkit();
  const auto& nvrtc = load_nvrtc(toolkit);
  Parts parts;
  std::vector<double> ratios, cold_ratios;
  for (int i = -2; i < repeats; ++i) {
    const auto unit = instantiate(service, kind, i + 2);
    auto start = Clock::now();
    const auto run_ours = [&] {
      start = Clock::now();
      const auto got = service.core().path().obtain(unit, {});
      const double total = ms(start);
      start = Clock::now();
      service.core().path().flush();
      if (i < 0) return;
      const compile::Facts& facts = got.image->facts;
      parts.warm.push_back(total), parts.publish.push_back(ms(start));
      parts.frontend.push_back(facts.frontend_ms), parts.nvvm.push_back(facts.nvvm_ms);
      parts.ptxas.push_back(facts.ptxas_ms), parts.around.push_back(total - facts.compile_ms);
    };
    const auto run_raw = [&] {
      start = Clock::now();
      compile_raw(nvrtc, unit, toolkit);
      if (i >= 0) parts.raw.push_back(ms(start));
    };
    if (i % 2 == 0)
      run_ours(), run_raw();
    else
      run_raw(), run_ours();
    if (i < 0) continue;
    ratios.push_back(parts.warm.back() / parts.raw.back());
    if (i >= 10 && kind.name == "cub") continue;
    time_worker(toolkit, service.config().get("worker"), parts);
    parts.cold.push_back(ours(kind, {1, 1}, false).seconds * 1e3);
    parts.raw_process.push_back(raw_processes(kind, {1, 1}, false).seconds * 1e3);
    cold_ratios.push_back(parts.cold.back() / parts.raw_process.back());
  }
  const double named = median(parts.frontend) + median(parts.nvvm) + median(parts.ptxas);
  std::printf(
      "%-6s one compile, median of %d: warm worker %.1f ms, raw in process %.1f, ratio %.3f; cold pool %.1f, "
      "raw "
      "fresh process %.1f, ratio %.3f\n       spawn %.1f  load %.1f  front end %.1f  NVVM %.1f  ptxas %.1f  "
      "rest of "
      "NVRTC %.1f  around it %.1f  publish (behind the answer) %.1f ms\n",
      kind.name.c_str(), repeats, median(parts.warm), median(parts.raw), median(ratios), median(parts.cold),
      median(parts.raw_process), median(cold_ratios), median(parts.spawn), median(parts.load),
      median(parts.frontend), median(parts.nvvm), median(parts.ptxas),
      median(parts.warm) - median(parts.around) - named, median(parts.around), median(parts.publish));
  char json[1024];
  std::snprintf(
      json, sizeof json,
      "{\"kind\": \"%s\", \"warm_ms\": %.3f, \"raw_ms\": %.3f, \"warm_ratio\": %.4f, \"cold_ms\": %.3f, "
      "\"raw_process_ms\": %.3f, \"cold_ratio\": %.4f, \"spawn_ms\": %.3f, \"load_ms\": %.3f, "
      "\"frontend_ms\": %.3f, \"nvvm_ms\": %.3f, \"ptxas_ms\": %.3f, \"around_ms\": %.3f, "
      "\"publish_ms\": %.3f}",
      kind.name.c_str(), median(parts.warm), median(parts.raw), median(ratios), median(parts.cold),
      median(parts.raw_process), median(cold_ratios), median(parts.spawn), median(parts.load),
      median(parts.frontend), median(parts.nvvm), median(parts.ptxas), median(parts.around),
      median(parts.publish));
  return json;
}

/// The clock runs from a ready context and buffers to the end of the first launch. For raw NVRTC it includes
/// dlopen and the first compile; for kiln, the Service with an empty cache, its worker and everything else.
int first_launch(const std::string& who) {
  using namespace toolchain;
  const Driver* driver = Driver::get();
  CUcontext context = nullptr;
  if (!driver || driver->cuInit(0) != 0 || driver->cuDevicePrimaryCtxRetain(&context, 0) != 0 ||
      driver->cuCtxSetCurrent(context) != 0)
    throw Error(Errc::no_driver, "first: no GPU");
  constexpr int hidden = 4096, count = 64;
  CUdeviceptr out = 0, x = 0, w = 0, residual = 0, scale = 0;
  for (CUdeviceptr* p : {&out, &x, &w})
    driver->check(driver->cuMemAlloc(p, 2 * hidden * count), "cuMemAlloc");
  driver->check(driver->cuCtxSynchronize(), "cuCtxSynchronize");
  int rows = count;
  long long stride_x = hidden, stride_out = hidden, stride_residual = hidden;
  float eps = 1e-6f;
  void* arguments[] = {&out,  &x, &w, &rows, &stride_x, &stride_out, &eps, &residual, &stride_residual,
                       &scale};
  const std::vector<Value> values{Dtype::bf16, hidden};
  const base::TempDir cache("kiln-bench-");
  const Options options = bench_options(cache.path() + "/cache", 1);

  // Prepares geometry and text for raw NVRTC outside the clock: an author of raw code has them already.
  std::unique_ptr<runtime::Service> prepared;
  std::optional<source::Instantiation> unit;
  if (who == "raw") {
    prepared = std::make_unique<runtime::Service>(options);
    const auto& opened = prepared->open("rms_norm", KILN_DEVICE_CURRENT, "");
    unit = source::instantiate(opened.shared_origin(),
                               source::resolve(opened.origin().manifest, values, opened.target().arch));
    prepared->core().state().files.toolkit();
  }
  const auto start = Clock::now();
  if (who == "raw") {
    const auto& toolkit = prepared->core().state().files.toolkit();
    const RawCompiled compiled = compile_raw(load_nvrtc(toolkit), *unit, toolkit);
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    driver->check(
        driver->cuLibraryLoadData(&library, compiled.image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData");
    driver->check(driver->cuLibraryGetKernel(&kernel, library, compiled.lowered_name.c_str()), "kernel");
    driver->check(driver->cuKernelGetFunction(&function, kernel), "function");
    toolchain::LaunchConfig config{};
    int threads = 0, block_rows = 1;
    for (const auto& p : unit->resolved.specialization.parameters) {
      if (p.name == "THREADS") threads = std::stoi(p.value);
      if (p.name == "ROWS") block_rows = std::stoi(p.value);
    }
    config.grid_x = static_cast<unsigned>((count + block_rows - 1) / block_rows),
    config.grid_y = config.grid_z = 1;
    config.block_x = static_cast<unsigned>(threads), config.block_y = static_cast<unsigned>(block_rows);
    config.block_z = 1;
    driver->check(driver->cuLaunchKernelEx(&config, function, arguments, nullptr), "cuLaunchKernelEx");
  } else {
    runtime::Service service(options);
    auto& kernel = service.open("rms_norm", KILN_DEVICE_CURRENT, "").get(values, {});
    const kiln_arg_type pointer{KILN_ARG_POINTER, 8}, wide{KILN_ARG_SIGNED, 8};
    const kiln_arg_type types[] = {
        pointer, pointer, pointer, {KILN_ARG_SIGNED, 4}, wide, wide, {KILN_ARG_FLOAT, 4}};
    kernel.launch(nullptr, types, arguments, std::size(types));
    driver->check(driver->cuCtxSynchronize(), "cuCtxSynchronize");
    std::printf("%.3f\n", ms(start));
    return 0;
  }
  driver->check(driver->cuCtxSynchronize(), "cuCtxSynchronize");
  std::printf("%.3f\n", ms(start));
  return 0;
}

}  // namespace kiln::bench
