// What `kiln tune` measures on a GPU: the bits that a kernel writes, and times of several kernels side by
// side.
#pragma once

#include <memory>
#include <vector>

#include "kiln/digest.hpp"
#include "run_case.hpp"

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
/// Of each, after one launch on fresh inputs of `seed`. Throws Error.
std::vector<WrittenBits> written_bits(RunCase& run, const runtime::LoadedKernel& kernel, std::uint64_t seed);

/// Microseconds of one launch of each, L2-cold as bench() has it: medians of rounds in which they take turns,
/// so that a clock that changes meanwhile changes them all. Throws Error.
std::vector<double> time_in_turns(const std::vector<TimedKernel>& kernels, std::uint64_t seed);

}  // namespace kiln::cli
