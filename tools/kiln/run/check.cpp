#include "tools/kiln/run/check.hpp"

#include <algorithm>
#include <cmath>

#include "kiln/error.hpp"
#include "tools/kiln/run/stream.hpp"
#include "tools/kiln/run/tensor_peak.hpp"

namespace kiln::cli {

using toolchain::CUdeviceptr;

namespace {

double tolerance_of(const source::Manifest& manifest, Dtype dtype) {
  for (const auto& [type, tolerance] : manifest.tolerance) {
    if (type == dtype) return tolerance;
  }
  return 0;  // exact, for integers and for dtypes without a tolerance in the manifest
}

std::uint64_t cold_bytes(const RunCase& run) {
  return 4ull * static_cast<std::uint64_t>(run.gpu().facts().l2);
}

/// Distance between neighbours below the smallest normal number. No kernel can avoid the error of rounding to
/// it: for uniformly distributed values its root mean square is quantum / sqrt(12).
double subnormal_quantum(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return 0x1p-24;
    case Dtype::e4m3:
      return 0x1p-9;
    case Dtype::e5m2:
      return 0x1p-16;
    default:
      return 0;  // f32, bf16, f64: too small to matter
  }
}

}  // namespace

std::vector<CheckedArgument> check(RunCase& run, const runtime::LoadedKernel& kernel,
                                   const runtime::LoadedKernel& reference, std::uint64_t seed) {
  const toolchain::Driver& driver = run.gpu().driver();
  const auto synchronize = [&](const char* doing) {
    driver.check(driver.cuCtxSynchronize(), "cuCtxSynchronize", doing);
  };
  BufferSet buffers = run.make_buffers(seed);
  const auto& arguments = run.manifest().arguments;

  // The reference writes doubles. An argument that it also reads starts as the widened input.
  BufferSet doubles(buffers.size());
  std::vector<CUdeviceptr> for_reference = RunCase::addresses_of(buffers);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!run.is_written(i)) continue;
    const auto n = static_cast<std::int64_t>(run.elements_of(i));
    doubles[i] = Buffer(driver, run.elements_of(i) * sizeof(double));
    if (arguments[i].access == source::Access::readwrite) {
      ArgumentList()
          .pointer(doubles[i].address())
          .pointer(buffers[i].address())
          .integer(n)
          .launch(run.own_kernel("kiln_widen", {run.dtype_of(i)}), nullptr);
    }
    for_reference[i] = doubles[i].address();
  }
  synchronize("preparing the reference");
  run.launch(reference, for_reference, nullptr);
  synchronize("running the reference");
  run.launch(kernel, RunCase::addresses_of(buffers), nullptr);
  synchronize("running the kernel");

  std::vector<CheckedArgument> out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!run.is_written(i)) continue;
    CheckedArgument result;
    result.name = arguments[i].name;
    result.dtype = to_string(run.dtype_of(i));
    result.elements = run.elements_of(i);
    result.tolerance = tolerance_of(run.manifest(), run.dtype_of(i));
    Buffer sums(driver, 6 * sizeof(double));
    driver.check(driver.cuMemsetD8(sums.address(), 0, sums.bytes()), "cuMemsetD8");
    ArgumentList()
        .pointer(sums.address())
        .pointer(buffers[i].address())
        .pointer(doubles[i].address())
        .integer(static_cast<std::int64_t>(result.elements))
        .launch(run.own_kernel("kiln_compare", {run.dtype_of(i)}), nullptr);
    synchronize("comparing");
    double host[6];
    driver.check(driver.cuMemcpyDtoH(host, sums.address(), sizeof host), "cuMemcpyDtoH");
    result.relative_rms = host[1] > 0 ? std::sqrt(host[0] / host[1]) : std::sqrt(host[0]);
    if (const double rms = std::sqrt(host[1] / host[4]); rms > 0) {
      result.tolerance =
          std::hypot(result.tolerance, subnormal_quantum(run.dtype_of(i)) / std::sqrt(12.0) / rms);
    }
    result.max_abs = host[2];
    result.mismatched_nonfinite = static_cast<std::uint64_t>(host[3]);
    result.differing = static_cast<std::uint64_t>(host[5]);
    result.canaries = buffers[i].intact();
    result.ok = result.canaries && result.mismatched_nonfinite == 0 &&
                host[4] == static_cast<double>(result.elements) && result.relative_rms <= result.tolerance;
    out.push_back(result);
  }
  for (const Buffer& buffer : buffers) {
    if (buffer.bytes() && !buffer.intact()) {
      for (CheckedArgument& result : out) result.canaries = result.ok = false;
    }
  }
  return out;
}

ColdLaunches cold_launches(const RunCase& run) {
  const std::uint64_t set = std::max<std::uint64_t>(1, run.set_bytes());
  ColdLaunches out;
  out.sets = static_cast<int>(std::clamp<std::uint64_t>((cold_bytes(run) + set - 1) / set, 2, 512));
  out.launches = std::max(out.launches, out.sets);
  return out;
}

BenchResult bench(RunCase& run, const runtime::LoadedKernel& kernel, std::uint64_t seed) {
  const source::Manifest& manifest = run.manifest();
  if (manifest.cost_read.empty() || manifest.cost_write.empty()) {
    throw Error(Errc::manifest, manifest.file + ": --bench needs [cost] read and write");
  }
  BenchResult out;
  out.read_bytes = static_cast<double>(manifest.cost_read.evaluate(run.values().slots()));
  out.write_bytes = static_cast<double>(manifest.cost_write.evaluate(run.values().slots()));
  if (!manifest.cost_flops.empty())
    out.flops = static_cast<double>(manifest.cost_flops.evaluate(run.values().slots()));

  const ColdLaunches rotation = cold_launches(run);
  out.sets = rotation.sets, out.launches = rotation.launches;
  out.replays = 21;
  std::vector<BufferSet> sets;
  for (int i = 0; i < out.sets; ++i) sets.push_back(run.make_buffers(seed + static_cast<std::uint64_t>(i)));

  Timer timer(run.gpu().driver());
  const auto record = [&](auto&& launch) {
    return [&, launch] {
      for (int i = 0; i < out.launches; ++i)
        launch(sets[static_cast<std::size_t>(i % out.sets)], i % out.sets);
    };
  };
  run.launch(kernel, RunCase::addresses_of(sets[0]),
             timer.stream());  // a launch sets some attributes once; that must happen outside the capture
  const double total = timer.median_us(record([&](const BufferSet& buffers, int) {
                                         run.launch(kernel, RunCase::addresses_of(buffers), timer.stream());
                                       }),
                                       3, out.replays);
  out.us = total / out.launches;
  sets.clear();

  out.stream_us = stream_us(run, timer, out, cold_bytes(run));
  if (!manifest.cost_dtype.empty() && out.flops > 0) {
    const auto unit = static_cast<Dtype>(manifest.cost_dtype.evaluate(run.values().slots()));
    out.unit = to_string(unit);
    out.peak = tensor_peak(run, timer, unit, out.replays);
  }
  return out;
}

}  // namespace kiln::cli
