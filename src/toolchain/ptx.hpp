// Reads a PTX text: its target, and the arguments of its kernels, which are compared with recorded facts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kiln::toolchain {

/// True when an image is PTX and no cubin.
bool is_ptx(std::string_view image) noexcept;

/// The number in `.target`, 90 for sm_90a; 0 when there is none.
int ptx_target(std::string_view text) noexcept;

struct PtxKernel {
  std::vector<std::uint32_t> arguments;                      ///< sizes in bytes, in order
  std::uint32_t max_threads = 0;                             ///< threads of a block; 0 when not bounded
  std::array<std::uint32_t, 3> required_block{}, cluster{};  ///< zeros when absent
};
/// Nothing when the text has no such kernel, or when its arguments cannot be read.
std::optional<PtxKernel> ptx_kernel(std::string_view text, std::string_view lowered_name);

}  // namespace kiln::toolchain
