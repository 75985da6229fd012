#include "runtime/launch/geometry.hpp"

#include <algorithm>

#include "runtime/launch/library.hpp"

namespace kiln::runtime {

using namespace toolchain;

namespace {

/// Bytes of shared memory, static and dynamic together, that every kernel may have without an attribute.
constexpr std::int64_t kFreeSharedBytes = 48 << 10;
/// Blocks of a cluster that every device of 9.0 or newer has room for.
constexpr unsigned kPortableCluster = 8;

std::string shape(const std::array<std::uint32_t, 3>& dimensions) {
  return std::to_string(dimensions[0]) + " x " + std::to_string(dimensions[1]) + " x " +
         std::to_string(dimensions[2]);
}
}  // namespace

LaunchGeometry::LaunchGeometry(const KernelDescription& kernel, const Driver& driver, CUfunction function)
    : kernel_(kernel),
      driver_(driver),
      function_(function),
      shared_allowed_(kFreeSharedBytes - kernel.facts.shared_bytes) {
  if (kernel_.recipe.block.empty()) check_block(kernel_.recipe.config);
  if (kernel_.recipe.cluster.empty()) check_cluster(kernel_.recipe.config);
}

inline void LaunchGeometry::set_dimension(const LaunchRecipe::Dimension& dimension,
                                          PreparedLaunch& out) const {
  const std::int64_t value = dimension.value.evaluate(out.slots);
  if (value < 0 || value > dimension.most) {
    kernel_.fail(Errc::requirement, std::string(dimension.name) + "[" + std::to_string(dimension.index) +
                                        "] = " + dimension.value.text() + " = " + std::to_string(value) +
                                        " is not in 0.." + std::to_string(dimension.most));
  }
  out.config.*dimension.into = static_cast<unsigned>(value);
}

void LaunchGeometry::set_shared_memory(PreparedLaunch& out) const {
  const std::int64_t bytes = kernel_.recipe.smem.evaluate(out.slots);
  const std::int64_t fixed = kernel_.facts.shared_bytes;
  const std::int64_t optin =
      kernel_.recipe.slots[static_cast<std::size_t>(kernel_.manifest.slots.smem_optin_slot())];
  if (bytes < 0 || bytes > optin - fixed) {
    kernel_.fail(Errc::requirement, "smem = " + kernel_.recipe.smem.text() + " = " + std::to_string(bytes) +
                                        " bytes (and " + std::to_string(fixed) +
                                        " static) do not fit this device's " + std::to_string(optin));
  }
  out.config.shared_bytes = static_cast<unsigned>(bytes);
}

void LaunchGeometry::set(PreparedLaunch& out) const {
  Geometry& c = out.config;
  c = kernel_.recipe.config;
  for (const auto& dimension : kernel_.recipe.block) set_dimension(dimension, out);
  if (!kernel_.recipe.block.empty()) check_block(c);
  if (!kernel_.recipe.smem.empty()) set_shared_memory(out);
  if (c.shared_bytes > shared_allowed_.load(std::memory_order_relaxed)) allow_shared_memory(c.shared_bytes);
  if (kernel_.recipe.wants_occupancy) {
    out.slots[static_cast<std::size_t>(kernel_.manifest.slots.occupancy_slot())] = occupancy(c);
  }
  for (const auto& dimension : kernel_.recipe.grid) set_dimension(dimension, out);
  for (const auto& dimension : kernel_.recipe.cluster) set_dimension(dimension, out);
  if (!kernel_.recipe.cluster.empty()) check_cluster(c);
  if (c.cluster_blocks() > kPortableCluster) allow_large_cluster();
}

/// Checks the block of [launch] against the source's __block_size__, reqntid or __launch_bounds__.
void LaunchGeometry::check_block(const Geometry& config) const {
  const auto& required = kernel_.facts.required_block;
  const std::array<std::uint32_t, 3> block{config.block_x, config.block_y, config.block_z};
  if (required[0] != 0 && block != required) {
    kernel_.fail(Errc::requirement, "[launch] block = " + shape(block) +
                                        ", and the kernel was compiled for blocks of " + shape(required) +
                                        " threads only");
  }
  const std::uint64_t threads = std::uint64_t{block[0]} * block[1] * block[2];
  if (kernel_.facts.max_threads != 0 && threads > kernel_.facts.max_threads) {
    kernel_.fail(Errc::requirement, "[launch] block = " + shape(block) + " has " + std::to_string(threads) +
                                        " threads, and the kernel's __launch_bounds__ allow " +
                                        std::to_string(kernel_.facts.max_threads));
  }
}

/// Checks the cluster of [launch] against the source's __cluster_dims__. Without a cluster in [launch],
/// __cluster_dims__ holds by itself.
void LaunchGeometry::check_cluster(const Geometry& config) const {
  const auto& compiled = kernel_.facts.cluster;
  const std::array<std::uint32_t, 3> cluster{config.cluster_x, config.cluster_y, config.cluster_z};
  if (compiled[0] == 0 || kernel_.spec.cluster.empty() || cluster == compiled) return;
  kernel_.fail(Errc::requirement, "[launch] cluster = " + shape(cluster) +
                                      ", and the kernel was compiled for clusters of " + shape(compiled) +
                                      " blocks only (__cluster_dims__)");
}

/// Blocks of this size that one multiprocessor holds.
std::int64_t LaunchGeometry::occupancy(const Geometry& config) const {
  const bool same = kernel_.recipe.block.empty() && kernel_.recipe.smem.empty();
  const std::int64_t before = occupancy_.load(std::memory_order_relaxed);
  if (same && before >= 0) return before;
  int blocks = 0;
  driver_.check(driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    &blocks, function_, static_cast<int>(config.block_x * config.block_y * config.block_z),
                    config.shared_bytes),
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", "launching " + kernel_.name);
  if (blocks == 0) {
    kernel_.fail(Errc::requirement, "occupancy = 0: not one block of " +
                                        std::to_string(config.block_x * config.block_y * config.block_z) +
                                        " threads with " + std::to_string(config.shared_bytes) +
                                        " bytes of dynamic shared memory fits a multiprocessor");
  }
  if (same) occupancy_.store(blocks, std::memory_order_relaxed);
  return blocks;
}

void LaunchGeometry::allow_shared_memory(std::int64_t bytes) const {
  // The attribute is set, not raised: a smaller value must not come after a larger one.
  const std::lock_guard lock(allowing_);
  if (bytes <= shared_allowed_.load(std::memory_order_relaxed)) return;
  const RelaxedCapture relaxed(driver_);
  driver_.check(driver_.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                           static_cast<int>(bytes)),
                "cuFuncSetAttribute",
                "allowing " + std::to_string(bytes) + " bytes of shared memory for " + kernel_.name);
  shared_allowed_.store(bytes, std::memory_order_relaxed);
}

void LaunchGeometry::allow_large_cluster() const {
  if (large_cluster_allowed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(allowing_);
  if (large_cluster_allowed_.load(std::memory_order_relaxed)) return;
  const RelaxedCapture relaxed(driver_);
  driver_.check(
      driver_.cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
      "cuFuncSetAttribute",
      "allowing clusters of more than " + std::to_string(kPortableCluster) + " blocks for " + kernel_.name);
  large_cluster_allowed_.store(true, std::memory_order_relaxed);
}

void LaunchGeometry::submit(CUstream stream, PreparedLaunch& prepared) const {
  Geometry& config = prepared.config;
  if (config.is_empty()) return;  // nothing to do: zero rows are a valid call
  config.stream = stream;
  if (kernel_.recipe.cluster.empty()) return submit(config, prepared.passed);
  std::array<LaunchAttribute, 3> attributes;
  Extras extras = kernel_.recipe.extras;
  if (config.cluster_blocks() > 1) extras.cluster = {config.cluster_x, config.cluster_y, config.cluster_z};
  extras.attach(attributes, config);
  submit(config, prepared.passed);
}

/// Throws Error(requirement). By this code `kiln tune` knows that a candidate cannot be launched.
void LaunchGeometry::refuse_cluster(const toolchain::LaunchConfig& config) const {
  std::array<std::uint32_t, 3> cluster = kernel_.facts.cluster;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const auto& attribute = config.attributes[i];
    const auto& size = attribute.value.cluster;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = {size.x, size.y, size.z};
  }
  kernel_.fail(Errc::requirement, "cluster = " + shape(cluster) +
                                      " blocks do not fit this device, or the slice of it that is used; " +
                                      std::to_string(kPortableCluster) + " fit every device of 9.0 or newer");
}

void LaunchGeometry::submit(const toolchain::LaunchConfig& config, void** parameters) const {
  const CUresult result = driver_.cuLaunchKernelEx(&config, function_, parameters, nullptr);
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  if (result == CUDA_ERROR_INVALID_CLUSTER_SIZE) refuse_cluster(config);
  driver_.check(result, "cuLaunchKernelEx", "launching " + kernel_.name);
}

void LaunchGeometry::allow(std::int64_t shared_bytes, unsigned cluster_blocks) const {
  if (shared_bytes > shared_allowed_.load(std::memory_order_relaxed)) allow_shared_memory(shared_bytes);
  if (cluster_blocks > kPortableCluster) allow_large_cluster();
}

}  // namespace kiln::runtime
