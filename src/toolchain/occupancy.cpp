#include "toolchain/occupancy.hpp"

#include <algorithm>
#include <limits>

namespace kiln::toolchain {
namespace {

constexpr std::uint32_t KiB = 1024;
constexpr int kWarp = 32, kPartitions = 4;
constexpr std::uint32_t kRegisters = 64 * KiB;   // registers of an SM, and most registers of a block
constexpr std::uint32_t kRegisterGranule = 256;  // a warp's registers are rounded up to a multiple of this
constexpr std::uint32_t kMostThreads = 1024;     // most threads of a block

struct Row {
  int arch;
  SmLimits limits;
};

/// Source: CUDA C++ Programming Guide 13.0, "Compute Capabilities", the tables of technical specifications
/// and of shared memory capacity. Blocks are as in the toolkit's cuda_occupancy.h. From 8.0 on, the system
/// keeps 1 KiB of shared memory in each block.
constexpr Row kTable[] = {
    {75, {32, 16, 64 * KiB, 64 * KiB, 0}},      {80, {64, 32, 164 * KiB, 163 * KiB, KiB}},
    {86, {48, 16, 100 * KiB, 99 * KiB, KiB}},   {87, {48, 16, 164 * KiB, 163 * KiB, KiB}},
    {88, {48, 16, 100 * KiB, 99 * KiB, KiB}},   {89, {48, 24, 100 * KiB, 99 * KiB, KiB}},
    {90, {64, 32, 228 * KiB, 227 * KiB, KiB}},  {100, {64, 32, 228 * KiB, 227 * KiB, KiB}},
    {103, {64, 32, 228 * KiB, 227 * KiB, KiB}}, {110, {48, 24, 228 * KiB, 227 * KiB, KiB}},
    {120, {48, 24, 100 * KiB, 99 * KiB, KiB}},  {121, {48, 24, 100 * KiB, 99 * KiB, KiB}},
};

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t granule) {
  return (value + granule - 1) / granule * granule;
}

}  // namespace

std::optional<SmLimits> sm_limits(base::Arch arch) noexcept {
  for (const Row& row : kTable)
    if (row.arch == arch.number) return row.limits;
  return std::nullopt;
}

std::optional<Occupancy> occupancy(base::Arch arch, std::uint32_t registers, std::uint64_t shared_bytes,
                                   std::uint32_t threads) noexcept {
  const auto sm = sm_limits(arch);
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
    const std::uint64_t in_all = kRegisters / kPartitions / warp * kPartitions;
    consider(even > kRegisters ? 0 : in_all / static_cast<std::uint64_t>(warps), Occupancy::Limit::registers);
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
