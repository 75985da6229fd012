#include "toolchain/occupancy.hpp"

#include <algorithm>
#include <limits>

namespace kiln::toolchain {
namespace {

constexpr int kWarp = 32, kPartitions = 4;
constexpr std::uint32_t kRegisterGranule = 256;  // a warp's registers are rounded up to a multiple of this
constexpr std::uint32_t kMostThreads = 1024;     // most threads of a block

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t granule) {
  return (value + granule - 1) / granule * granule;
}

}  // namespace

std::optional<Occupancy> occupancy(base::Arch arch, std::uint32_t registers, std::uint64_t shared_bytes,
                                   std::uint32_t threads) noexcept {
  const auto sm = base::sm_limits(arch);
  if (!sm || threads == 0) return std::nullopt;
  Occupancy out;
  out.most_warps = sm->warps;
  const int warps = static_cast<int>((std::uint64_t{threads} + kWarp - 1) / kWarp);
  const auto consider = [&](std::uint64_t blocks, Occupancy::Limit limit, bool first = false) {
    if (!first && blocks >= static_cast<std::uint64_t>(out.blocks)) return;
    out.blocks = static_cast<int>(std::min<std::uint64_t>(blocks, std::numeric_limits<int>::max()));
    out.limit = limit;
  };
  consider(threads > kMostThreads ? 0 : static_cast<std::uint64_t>(sm->warps / warps),
           Occupancy::Limit::warps, true);
  consider(static_cast<std::uint64_t>(sm->blocks), Occupancy::Limit::blocks);
  if (registers > 0) {
    const std::uint64_t warp = rounded_up(std::uint64_t{registers} * kWarp, kRegisterGranule);
    // Each quarter of the SM has its own registers. A block is refused when its warps would not fit if
    // they were spread evenly.
    const std::uint64_t even = rounded_up(static_cast<std::uint64_t>(warps), kPartitions) * warp;
    const std::uint64_t in_all = base::SmLimits::kRegisters / kPartitions / warp * kPartitions;
    consider(even > base::SmLimits::kRegisters ? 0 : in_all / static_cast<std::uint64_t>(warps),
             Occupancy::Limit::registers);
  }
  const std::uint64_t block = rounded_up(shared_bytes + sm->shared_reserved, arch.number < 80 ? 256 : 128);
  if (shared_bytes > sm->shared_opt_in)
    consider(0, Occupancy::Limit::shared);
  else if (block > 0)
    consider(sm->shared_bytes / block, Occupancy::Limit::shared);
  out.warps = out.blocks * warps;
  return out;
}

}  // namespace kiln::toolchain
