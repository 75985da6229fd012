// The floor of the roofline: a kernel that only moves the same bytes.
#pragma once

#include <cstdint>

#include "tools/kiln/run/check.hpp"

namespace kiln::cli {

/// Microseconds of one launch that reads `of.read_bytes` and writes `of.write_bytes`. Its buffers are as cold
/// as the measured kernel's: `cold` bytes or more in all. One and two vectors per thread are tried, because
/// which is faster depends on the mix; the faster time is returned. Throws Error.
double stream_us(RunCase& run, Timer& timer, const BenchResult& of, std::uint64_t cold);

}  // namespace kiln::cli
