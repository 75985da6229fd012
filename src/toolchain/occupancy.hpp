// The number of blocks of a kernel that an SM can hold at once, computed from the compiler's
// facts without a driver.
#pragma once

#include <cstdint>
#include <optional>

#include "base/arch.hpp"

namespace kiln::toolchain {

struct Occupancy {
  enum class Limit { warps, blocks, registers, shared };
  int blocks = 0;  ///< blocks that fit on one SM; 0: none can be launched
  int warps = 0;   ///< warps of those blocks
  int most_warps = 0;
  Limit limit = Limit::warps;  ///< the resource that allows no more; of several, the first in the order above
  double fraction() const noexcept { return static_cast<double>(warps) / most_warps; }
};

/// The occupancy of a kernel. `registers` is for one thread; `shared_bytes` is static and dynamic shared
/// memory of one block. It is assumed that the SM gives as much memory as it can to shared memory. Nothing
/// for an unknown arch or 0 threads.
std::optional<Occupancy> occupancy(base::Arch arch, std::uint32_t registers, std::uint64_t shared_bytes,
                                   std::uint32_t threads) noexcept;

}  // namespace kiln::toolchain
