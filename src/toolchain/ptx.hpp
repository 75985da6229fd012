// Reads a PTX text: its target, and the arguments of its kernels, which are compared with recorded facts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kiln::toolchain {

/// True when an image is PTX and no cubin.
bool is_ptx(std::string_view image) noexcept;

/// The number in `.target`, 90 for sm_90a; 0 when there is none.
int ptx_target(std::string_view text) noexcept;

/// The sizes in bytes of a kernel's arguments, in order. Nothing when the text has no such kernel, or when its
/// arguments cannot be read.
std::optional<std::vector<std::uint32_t>> ptx_arguments(std::string_view text, std::string_view lowered_name);

}  // namespace kiln::toolchain
