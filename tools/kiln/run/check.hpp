// `kiln run --check` compares with the template's reference; `--bench` compares with the stream floor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/kiln/run/case.hpp"

namespace kiln::cli {

struct CheckedArgument {
  std::string name, dtype;
  double relative_rms = 0, max_abs = 0;
  double tolerance = 0;  ///< of relative_rms: the manifest's, plus the rounding error of the dtype's
                         ///< subnormals for very small values
  std::uint64_t elements = 0, mismatched_nonfinite = 0;
  std::uint64_t differing = 0;  ///< elements that are not equal, by rounding or worse; for integers these are
                                ///< the wrong ones
  bool canaries = false, ok = false;
};

/// Launches kernel and reference once on the same inputs. Returns one result for each written argument.
/// Throws Error.
std::vector<CheckedArgument> check(RunCase& run, const runtime::LoadedKernel& kernel,
                                   const runtime::LoadedKernel& reference, std::uint64_t seed);

struct BenchResult {
  double us = 0;         ///< median of one launch
  double stream_us = 0;  ///< time of a stream kernel that moves the same bytes in the same read : write mix
  double read_bytes = 0, write_bytes = 0, flops = 0;  ///< for one launch, from [cost]
  std::string unit;  ///< dtype of the tensor cores that make the flops; "" when none do
  double peak = 0;   ///< flops per microsecond of these tensor cores, measured; 0: not known
  int launches = 0, sets = 0, replays = 0;
  /// Microseconds that the flops take at the peak; 0: not known.
  double tensor_us() const { return peak > 0 ? flops / peak : 0; }
  /// No kernel of this cost is faster.
  double floor_us() const { return std::max(stream_us, tensor_us()); }
  double teraflops_per_s() const { return flops / us / 1e6; }
  double terabytes_per_s() const { return (read_bytes + write_bytes) / us / 1e6; }
  double share() const { return floor_us() / us; }
};

/// How calls are timed with a cold L2: launches of one graph rotate over buffer sets of at least 4 x
/// L2 in all.
struct ColdLaunches {
  int sets = 2, launches = 20;
};
ColdLaunches cold_launches(const RunCase& run);

/// Times with a cold L2, as `cold_launches` says, by replays of a graph of at least 20 launches. Throws
/// Error, also when the manifest has no [cost].
BenchResult bench(RunCase& run, const runtime::LoadedKernel& kernel, std::uint64_t seed);

}  // namespace kiln::cli
