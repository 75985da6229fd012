// The grid, block, cluster and shared memory of a launch: computed, checked against the image, allowed
// by the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "runtime/launch/kernel_description.hpp"

namespace kiln::runtime {

/// Thread-safe.
class LaunchGeometry {
 public:
  /// Throws Error(requirement) when the manifest's launch can never fit the image.
  LaunchGeometry(const KernelDescription& kernel, const toolchain::Driver& driver,
                 toolchain::CUfunction function);

  /// Fills the configuration from the slots. Throws Error(requirement).
  void set(PreparedLaunch& out) const;
  /// Lets the function have this many bytes of dynamic shared memory, and clusters of this many blocks.
  void allow(std::int64_t shared_bytes, unsigned cluster_blocks) const;
  /// Calls the driver. Throws Error.
  void submit(const toolchain::LaunchConfig& config, void** parameters) const;
  /// Launches what `set` has filled. A grid without blocks is valid, and launches nothing.
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
  mutable std::atomic<std::int64_t> occupancy_{-1};  ///< kept when it is equal for all launches
  /// Guards raising the two values below together with the driver's attributes.
  mutable std::mutex allowing_;
  mutable std::atomic<std::int64_t> shared_allowed_;
  mutable std::atomic<bool> large_cluster_allowed_{false};
};

}  // namespace kiln::runtime
