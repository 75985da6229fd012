// Measurements of `kiln tune` on a GPU: the bits that a kernel writes, and times of several kernels side by
// side.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kiln/digest.hpp"
#include "tools/kiln/run/run.hpp"

namespace kiln::cli {

/// A kernel, and the call that it is launched for.
struct TimedKernel {
  RunCase* run = nullptr;
  const runtime::LoadedKernel* kernel = nullptr;
};

/// The bits of one written argument after a launch.
struct WrittenBits {
  std::string argument;
  Digest digest;
};
/// The results of a launch in memory.
struct Written {
  std::vector<WrittenBits> bits;
  std::string outside;  ///< an argument whose buffer was written past its bounds; empty: none
};
/// Launches once on fresh inputs of `seed`. Throws Error.
Written written_bits(RunCase& run, const runtime::LoadedKernel& kernel, std::uint64_t seed);

/// How an argument that is not ok differs. REQUIRES: its canaries are intact.
std::string what_is_wrong(const CheckedArgument& argument);

/// Microseconds of one launch of each kernel, with a cold L2 as in bench(). Each is a median of rounds in
/// which the kernels take turns, so that a change of the clock affects all of them. Throws Error, also when a
/// time is invalid (a timer that does not run).
std::vector<double> time_in_turns(const std::vector<TimedKernel>& kernels, std::uint64_t seed);

}  // namespace kiln::cli
