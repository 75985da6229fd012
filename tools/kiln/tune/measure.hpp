// What `kiln tune` measures on a GPU: the bits that a kernel writes, and times of several kernels side by
// side.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kiln/digest.hpp"
#include "tools/kiln/run/case.hpp"
#include "tools/kiln/run/check.hpp"

namespace kiln::cli {

/// A kernel with the call that it is launched for.
struct TimedKernel {
  RunCase* run = nullptr;
  const runtime::LoadedKernel* kernel = nullptr;
};

/// What a launch left in one written argument.
struct WrittenBits {
  std::string argument;
  Digest digest;
};
/// What a launch has left in memory.
struct Written {
  std::vector<WrittenBits> bits;
  std::string outside;  ///< the argument beside whose buffer something was written; empty: none
};
/// After one launch on fresh inputs of `seed`. Throws Error.
Written written_bits(RunCase& run, const runtime::LoadedKernel& kernel, std::uint64_t seed);

/// Of one that is not ok, with its buffers intact.
std::string what_is_wrong(const CheckedArgument& argument);

/// Microseconds of one launch of each, L2-cold as bench() has it: medians of rounds in which they take turns,
/// so that a clock that changes meanwhile changes them all. Throws Error, also where a time is none (a timer
/// that does not run).
std::vector<double> time_in_turns(const std::vector<TimedKernel>& kernels, std::uint64_t seed);

}  // namespace kiln::cli
