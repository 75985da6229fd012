#include "tools/kiln/run/tensor_peak.hpp"

#include <algorithm>
#include <limits>

namespace kiln::cli {
namespace {

// Products of each warpgroup. They take about 0.3 ms, so that the launch does not count.
constexpr int kSteps = 400;
constexpr int kWarmups = 8;  // an idle card needs some milliseconds to reach its clock

}  // namespace

double tensor_peak(RunCase& run, Timer& timer, Dtype unit, int tries) {
  const toolchain::DeviceFacts& device = run.gpu().facts();
  if (device.arch.number != 90) return 0;
  if (unit != Dtype::bf16 && unit != Dtype::f16 && unit != Dtype::e4m3) return 0;
  const runtime::LoadedKernel& kernel = run.own_kernel("kiln_wgmma", {unit});
  const Buffer out(run.gpu().driver(), sizeof(float));
  const auto launch = [&] {
    ArgumentList().pointer(out.address()).integer(kSteps).launch(kernel, timer.stream());
  };
  launch();
  double us = std::numeric_limits<double>::infinity();
  for (int i = 0; i < tries; ++i) us = std::min(us, timer.median_us(launch, kWarmups, 1));
  const double product = 2.0 * 64 * 256 * (128.0 / static_cast<double>(size_of(unit)));
  return device.sms * 2.0 * kSteps * product / us;
}

}  // namespace kiln::cli
