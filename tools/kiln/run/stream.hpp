// The floor of the roofline: a kernel that moves the same bytes and does nothing else.
#pragma once

#include <cstdint>

#include "tools/kiln/run/check.hpp"

namespace kiln::cli {

/// Microseconds of one launch that reads and writes `of.read_bytes` and `of.write_bytes`, from buffers that
/// are as cold (`cold` bytes or more in all): the faster of one and of two vectors per thread, since which
/// one is depends on the mix. Throws Error.
double stream_us(RunCase& run, Timer& timer, const BenchResult& of, std::uint64_t cold);

}  // namespace kiln::cli
