#include "tools/kiln/tune/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/hash.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

constexpr int kRounds = 9, kWarmups = 1, kReplays = 3;  // the median of a round's replays counts

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Bytes of each argument. Calls with equal sizes share their buffers.
std::vector<std::uint64_t> sizes_of(const RunCase& run) {
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < run.manifest().arguments.size(); ++i)
    out.push_back(run.elements_of(i) * size_of(run.dtype_of(i)));
  return out;
}

}  // namespace

Written written_bits(RunCase& run, const runtime::LoadedKernel& kernel, std::uint64_t seed) {
  const toolchain::Driver& driver = run.gpu().driver();
  const BufferSet buffers = run.make_buffers(seed);
  run.launch(kernel, RunCase::addresses_of(buffers), nullptr);
  driver.check(driver.cuCtxSynchronize(), "cuCtxSynchronize", "running " + kernel.specialization());
  Written out;
  std::string bytes;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (out.outside.empty() && buffers[i].bytes() && !buffers[i].intact())
      out.outside = run.manifest().arguments[i].name;
    if (!run.is_written(i)) continue;
    bytes.resize(buffers[i].bytes());
    driver.check(driver.cuMemcpyDtoH(bytes.data(), buffers[i].address(), bytes.size()), "cuMemcpyDtoH");
    out.bits.push_back({run.manifest().arguments[i].name, base::digest_of(bytes)});
  }
  return out;
}

std::string what_is_wrong(const CheckedArgument& argument) {
  char out[128];
  if (argument.mismatched_nonfinite > 0)
    std::snprintf(out, sizeof out,
                  "is wrong: in %llu elements, the result alone or the reference alone is a finite number",
                  static_cast<unsigned long long>(argument.mismatched_nonfinite));
  else
    std::snprintf(out, sizeof out, "is wrong: relative RMS %.2e against the reference, allowed %.1e",
                  argument.relative_rms, argument.tolerance);
  return out;
}

std::vector<double> time_in_turns(const std::vector<TimedKernel>& kernels, std::uint64_t seed) {
  std::map<std::vector<std::uint64_t>, std::vector<BufferSet>> sets;
  std::vector<std::unique_ptr<Timer>> timers;
  for (const auto& [run, kernel] : kernels) {
    const ColdLaunches rotation = cold_launches(*run);
    auto& own = sets[sizes_of(*run)];
    for (int i = static_cast<int>(own.size()); i < rotation.sets; ++i)
      own.push_back(run->make_buffers(seed + static_cast<std::uint64_t>(i)));
    Timer& timer = *timers.emplace_back(std::make_unique<Timer>(run->gpu().driver()));
    // A launch sets some attributes once; that must happen outside the capture.
    run->launch(*kernel, RunCase::addresses_of(own.front()), timer.stream());
    timer.capture([&, &run = run, &kernel = kernel] {
      for (int i = 0; i < rotation.launches; ++i)
        run->launch(*kernel, RunCase::addresses_of(own[static_cast<std::size_t>(i % rotation.sets)]),
                    timer.stream());
    });
  }
  std::vector<std::vector<double>> times(kernels.size());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const std::size_t at =
          (i + static_cast<std::size_t>(round)) % kernels.size();  // the order changes with each round
      times[at].push_back(timers[at]->replay(kWarmups, kReplays) / cold_launches(*kernels[at].run).launches);
    }
  std::vector<double> out;
  for (std::vector<double>& each : times) {
    const double us = median(std::move(each));
    if (!std::isfinite(us) || us <= 0)
      throw Error(Errc::driver, "timing " + kernels[out.size()].kernel->specialization() + " gave " +
                                    std::to_string(us) + " us, by which no candidate can be chosen");
    out.push_back(us);
  }
  return out;
}

}  // namespace kiln::cli
