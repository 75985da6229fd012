// A launch's grid, block, cluster and shared memory: worked out, held against the image, allowed by the
// driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "runtime/launch/kernel_description.hpp"

namespace kiln::runtime {

/// Thread-safe.
class LaunchGeometry {
 public:
  /// Throws Error(requirement) when the manifest's launch can never be that of the image.
  LaunchGeometry(const KernelDescription& kernel, const toolchain::Driver& driver,
                 toolchain::CUfunction function);

  /// Fills the configuration from the slots. Throws Error(requirement).
  void set(PreparedLaunch& out) const;
  /// Lets the function have so much dynamic shared memory and clusters of so many blocks.
  void allow(std::int64_t shared_bytes, unsigned cluster_blocks) const;
  /// Calls the driver. Throws Error.
  void submit(const toolchain::LaunchConfig& config, void** parameters) const;
  /// The same for a launch that `set` has filled; one without blocks is nothing to do.
  void submit(toolchain::CUstream stream, PreparedLaunch& prepared) const;

 private:
  void set_dimension(const LaunchRecipe::Dimension& dimension, PreparedLaunch& out) const;
  void set_shared_memory(PreparedLaunch& out) const;
  void check_block(const Geometry& config) const;
  void check_cluster(const Geometry& config) const;
  std::int64_t occupancy(const Geometry& config) const;
  void allow_shared_memory(std::int64_t bytes) const;
  void allow_large_cluster() const;
  [[noreturn]] void refuse_cluster(const toolchain::LaunchConfig& config) const;

  const KernelDescription& kernel_;
  const toolchain::Driver& driver_;
  const toolchain::CUfunction function_;
  mutable std::atomic<std::int64_t> occupancy_{-1};  ///< when it is the same for all launches
  mutable std::mutex allowing_;  ///< guards raising what follows and the driver's attribute together
  mutable std::atomic<std::int64_t> shared_allowed_;
  mutable std::atomic<bool> large_cluster_allowed_{false};
};

}  // namespace kiln::runtime
