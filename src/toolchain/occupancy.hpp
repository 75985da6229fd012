// How many blocks of a kernel an SM holds at once, from what the compiler says of it: no driver asked.
#pragma once

#include <cstdint>
#include <optional>

#include "base/arch.hpp"

namespace kiln::toolchain {

/// Of one SM.
struct SmLimits {
  int warps = 0, blocks = 0;
  std::uint32_t shared_bytes = 0;     ///< of all blocks together, what the system reserves in each included
  std::uint32_t shared_opt_in = 0;    ///< most that one block may have
  std::uint32_t shared_reserved = 0;  ///< by the system, in each block
};
/// Nothing for an arch that the table does not know.
std::optional<SmLimits> sm_limits(base::Arch arch) noexcept;

struct Occupancy {
  enum class Limit { warps, blocks, registers, shared };
  int blocks = 0;  ///< that fit on one SM; 0: none can be launched
  int warps = 0;   ///< of those blocks
  int most_warps = 0;
  Limit limit = Limit::warps;  ///< what allows no more; of several, the first in the order above
  double fraction() const noexcept { return static_cast<double>(warps) / most_warps; }
};

/// Of blocks of `threads` threads with `registers` for each and `shared_bytes` of static and dynamic memory
/// together, where the SM gives as much to shared memory as it can. Nothing for an unknown arch and for
/// 0 threads.
std::optional<Occupancy> occupancy(base::Arch arch, std::uint32_t registers, std::uint64_t shared_bytes,
                                   std::uint32_t threads) noexcept;

}  // namespace kiln::toolchain
