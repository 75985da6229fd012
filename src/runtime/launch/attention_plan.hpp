// A manifest's [plan] of kind "attention" with its expressions worked out.
#pragma once

#include <cstdint>
#include <span>

#include "attention/plan.hpp"
#include "manifest/manifest.hpp"

namespace kiln::runtime {

/// What the kernel fixes. Throws Error(invalid_argument) when the manifest has no such plan. `slots`: at
/// least parameters, derives, exports, arch and device.
attention::KernelShape attention_shape(const source::Manifest& manifest, std::span<const std::int64_t> slots);

/// What a loaded kernel's plans begin with, worked out once.
struct AttentionKernel {
  attention::KernelShape shape;
  std::int64_t workers;  ///< that a caller leaves to the manifest
};

/// The `workers` that a caller leaves to the manifest.
std::int64_t attention_workers(const source::Manifest& manifest, std::span<const std::int64_t> slots);

/// Of the workspace of so many workers; 0 when the kernel takes none.
std::uint64_t attention_workspace_bytes(const source::Manifest& manifest, std::span<const std::int64_t> slots,
                                        std::int64_t workers);

}  // namespace kiln::runtime
