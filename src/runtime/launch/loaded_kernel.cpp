#include "runtime/launch/loaded_kernel.hpp"

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::runtime {

using namespace toolchain;

namespace {
/// Dynamic shared memory that every kernel may have without being asked for.
constexpr std::int64_t kFreeSharedBytes = 48 << 10;
/// Blocks of a cluster that every device of 9.0 or newer has room for.
constexpr unsigned kPortableCluster = 8;

const source::Manifest& manifest_of(const source::Template& origin, base::Arch arch, std::size_t entry) {
  const source::Manifest& first = origin.manifest.on(arch);
  return entry == 0 ? first : *first.entries.at(entry - 1);
}

const compile::EntryFacts& facts_of(const StoredImage& image, std::size_t entry) {
  return entry == 0 ? image.facts : image.facts.entries.at(entry - 1);
}

std::string name_of(const source::Resolved& resolved, const source::Manifest& manifest, std::size_t entry) {
  const std::string name = resolved.specialization.to_string();
  return entry == 0 ? name : name + ", kernel '" + manifest.entry + '\'';
}

std::string shape(const std::array<std::uint32_t, 3>& dimensions) {
  return std::to_string(dimensions[0]) + " x " + std::to_string(dimensions[1]) + " x " +
         std::to_string(dimensions[2]);
}
}  // namespace

LoadedKernel::LoadedKernel(const Driver& driver, const DeviceFacts& device,
                           std::shared_ptr<const source::Template> origin, source::Which which,
                           source::Resolved resolved, Obtained obtained,
                           std::shared_ptr<const Library> library, std::size_t entry,
                           const LoadedKernel* first)
    : driver_(driver),
      origin_(std::move(origin)),
      which_(which),
      resolved_(std::move(resolved)),
      manifest_(manifest_of(*origin_, resolved_.arch, entry)),
      obtained_(std::move(obtained)),
      facts_(facts_of(*obtained_.image, entry)),
      library_(std::move(library)),
      function_(library_->function(entry)),
      name_(name_of(resolved_, manifest_, entry)),
      plan_(manifest(), spec(), known_slots(device), facts_.shared_bytes,
            which == source::Which::kernel ? LaunchPlan::Exports::known : LaunchPlan::Exports::not_there),
      shared_allowed_(kFreeSharedBytes - facts_.shared_bytes),
      first_(first) {
  if (plan_.block.empty()) check_block(plan_.config);
  if (plan_.cluster.empty()) check_cluster(plan_.config);
  const std::size_t others = entry == 0 ? obtained_.image->facts.entries.size() : 0;
  for (std::size_t i = 1; i <= others; ++i) {
    entries_.push_back(std::make_unique<const LoadedKernel>(driver, device, origin_, which, resolved_,
                                                            obtained_, library_, i, this));
  }
}

std::vector<std::int64_t> LoadedKernel::known_slots(const DeviceFacts& device) const {
  const source::SlotLayout& layout = manifest().slots;
  std::vector<std::int64_t> out = source::slots_of(manifest(), resolved_);
  for (const compile::ExportFact& constant : obtained_.image->facts.exports) {
    const int slot = manifest().slot_index(constant.name);
    if (slot >= layout.export_slot(0) && slot < layout.arch_slot())
      out[static_cast<std::size_t>(slot)] = constant.value;
  }
  out[static_cast<std::size_t>(layout.sms_slot())] = device.sms;
  out[static_cast<std::size_t>(layout.smem_optin_slot())] = device.smem_optin;
  out[static_cast<std::size_t>(layout.l2_slot())] = device.l2;
  return out;
}

const source::LaunchSpec& LoadedKernel::spec() const noexcept {
  return which_ == source::Which::reference ? manifest().reference->launch : manifest().kernel.launch;
}

void LoadedKernel::fail(Errc code, const std::string& what) const { throw Error(code, name_ + ": " + what); }

void LoadedKernel::fail_in_other_process() const {
  Driver::refuse_in_forked_child("launching " + name_);
  fail(Errc::internal, "was loaded by another process");  // loading tells the driver's table of its process
}

inline void LoadedKernel::set_dimension(const LaunchPlan::Dimension& dimension, PreparedLaunch& out) const {
  const std::int64_t value = dimension.value.evaluate(out.slots);
  if (value < 0 || value > dimension.most) {
    fail(Errc::requirement, std::string(dimension.name) + "[" + std::to_string(dimension.index) +
                                "] = " + dimension.value.text() + " = " + std::to_string(value) +
                                " is not in 0.." + std::to_string(dimension.most));
  }
  out.config.*dimension.into = static_cast<unsigned>(value);
}

void LoadedKernel::set_shared_memory(PreparedLaunch& out) const {
  const std::int64_t bytes = plan_.smem.evaluate(out.slots);
  const std::int64_t fixed = facts_.shared_bytes;
  const std::int64_t optin = plan_.slots[static_cast<std::size_t>(manifest().slots.smem_optin_slot())];
  if (bytes < 0 || bytes > optin - fixed) {
    fail(Errc::requirement, "smem = " + plan_.smem.text() + " = " + std::to_string(bytes) + " bytes (and " +
                                std::to_string(fixed) + " static) do not fit this device's " +
                                std::to_string(optin));
  }
  out.config.shared_bytes = static_cast<unsigned>(bytes);
}

void LoadedKernel::set_geometry(PreparedLaunch& out) const {
  Geometry& c = out.config;
  c = plan_.config;
  for (const auto& dimension : plan_.block) set_dimension(dimension, out);
  if (!plan_.block.empty()) check_block(c);
  if (!plan_.smem.empty()) set_shared_memory(out);
  if (c.shared_bytes > shared_allowed_.load(std::memory_order_relaxed)) allow_shared_memory(c.shared_bytes);
  if (plan_.wants_occupancy) {
    out.slots[static_cast<std::size_t>(manifest().slots.occupancy_slot())] = occupancy(c);
  }
  for (const auto& dimension : plan_.grid) set_dimension(dimension, out);
  for (const auto& dimension : plan_.cluster) set_dimension(dimension, out);
  if (!plan_.cluster.empty()) check_cluster(c);
  if (c.cluster_blocks() > kPortableCluster) allow_large_cluster();
}

/// The source's __block_size__, reqntid or __launch_bounds__ against what [launch] makes of it.
void LoadedKernel::check_block(const Geometry& config) const {
  const auto& required = facts_.required_block;
  const std::array<std::uint32_t, 3> block{config.block_x, config.block_y, config.block_z};
  if (required[0] != 0 && block != required) {
    fail(Errc::requirement, "[launch] block = " + shape(block) +
                                ", and the kernel was compiled for blocks of " + shape(required) +
                                " threads only");
  }
  const std::uint64_t threads = std::uint64_t{block[0]} * block[1] * block[2];
  if (facts_.max_threads != 0 && threads > facts_.max_threads) {
    fail(Errc::requirement, "[launch] block = " + shape(block) + " has " + std::to_string(threads) +
                                " threads, and the kernel's __launch_bounds__ allow " +
                                std::to_string(facts_.max_threads));
  }
}

/// Against the source's __cluster_dims__. Without a cluster in [launch] they hold by themselves.
void LoadedKernel::check_cluster(const Geometry& config) const {
  const auto& compiled = facts_.cluster;
  const std::array<std::uint32_t, 3> cluster{config.cluster_x, config.cluster_y, config.cluster_z};
  if (compiled[0] == 0 || spec().cluster.empty() || cluster == compiled) return;
  fail(Errc::requirement, "[launch] cluster = " + shape(cluster) +
                              ", and the kernel was compiled for clusters of " + shape(compiled) +
                              " blocks only (__cluster_dims__)");
}

const AttentionKernel& LoadedKernel::attention() const {
  return attention_.get([&] {
    return AttentionKernel{attention_shape(manifest(), fixed_slots()),
                           attention_workers(manifest(), fixed_slots())};
  });
}

const LoadedKernel& LoadedKernel::entry(std::string_view wanted) const {
  if (first_) return first_->entry(wanted);
  if (wanted == manifest_.entry) return *this;
  std::string known = manifest_.entry;
  for (const auto& other : entries_) {
    if (other->manifest_.entry == wanted) return *other;
    known += (known.empty() ? "" : ", ") + other->manifest_.entry;
  }
  fail(Errc::invalid_argument, "has no [[kernel]] called '" + std::string(wanted) + "'; it has: " +
                                   (known.empty() ? "none but the one that [template] names" : known));
}

Library::Global LoadedKernel::global(std::string_view wanted) const {
  const auto& globals = obtained_.image->facts.globals;
  std::string known;
  for (std::size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].name == wanted) return library_->globals()[i];
    known += (i ? ", " : "") + globals[i].name;
  }
  fail(Errc::invalid_argument,
       "has no [[global]] called '" + std::string(wanted) + "'; it has: " + (known.empty() ? "none" : known));
}

std::int64_t LoadedKernel::constant(std::string_view wanted) const {
  std::string known;
  for (const compile::ExportFact& constant : obtained_.image->facts.exports) {
    if (constant.name == wanted) return constant.value;
    known += (known.empty() ? "" : ", ") + constant.name;
  }
  fail(Errc::invalid_argument,
       "has no [export] called '" + std::string(wanted) + "'; it has: " + (known.empty() ? "none" : known));
}

/// Blocks of this size that one multiprocessor holds.
std::int64_t LoadedKernel::occupancy(const Geometry& config) const {
  const bool same = plan_.block.empty() && plan_.smem.empty();
  const std::int64_t before = occupancy_.load(std::memory_order_relaxed);
  if (same && before >= 0) return before;
  int blocks = 0;
  driver_.check(driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    &blocks, function(), static_cast<int>(config.block_x * config.block_y * config.block_z),
                    config.shared_bytes),
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", "launching " + name_);
  if (blocks == 0) {
    fail(Errc::requirement, "occupancy = 0: not one block of " +
                                std::to_string(config.block_x * config.block_y * config.block_z) +
                                " threads with " + std::to_string(config.shared_bytes) +
                                " bytes of dynamic shared memory fits a multiprocessor");
  }
  if (same) occupancy_.store(blocks, std::memory_order_relaxed);
  return blocks;
}

void LoadedKernel::allow_shared_memory(std::int64_t bytes) const {
  const std::lock_guard lock(
      allowing_);  // the attribute is set, not raised: a smaller one must not come after a larger
  if (bytes <= shared_allowed_.load(std::memory_order_relaxed)) return;
  const RelaxedCapture relaxed(driver_);
  driver_.check(driver_.cuFuncSetAttribute(function(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                           static_cast<int>(bytes)),
                "cuFuncSetAttribute",
                "allowing " + std::to_string(bytes) + " bytes of shared memory for " + name_);
  shared_allowed_.store(bytes, std::memory_order_relaxed);
}

void LoadedKernel::allow_large_cluster() const {
  if (large_cluster_allowed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(allowing_);
  if (large_cluster_allowed_.load(std::memory_order_relaxed)) return;
  const RelaxedCapture relaxed(driver_);
  driver_.check(
      driver_.cuFuncSetAttribute(function(), CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
      "cuFuncSetAttribute",
      "allowing clusters of more than " + std::to_string(kPortableCluster) + " blocks for " + name_);
  large_cluster_allowed_.store(true, std::memory_order_relaxed);
}

void LoadedKernel::launch_prepared(CUstream stream, PreparedLaunch& prepared) const {
  Geometry& config = prepared.config;
  if (config.grid_x == 0 || config.grid_y == 0 || config.grid_z == 0)
    return;  // nothing to do: zero rows are a valid call
  config.stream = stream;
  if (plan_.cluster.empty()) return submit(config, prepared.parameters.data());
  std::array<LaunchAttribute, 3> attributes;
  Extras extras = plan_.extras;
  if (config.cluster_blocks() > 1) extras.cluster = {config.cluster_x, config.cluster_y, config.cluster_z};
  extras.attach(attributes, config);
  submit(config, prepared.parameters.data());
}

/// Of `kiln tune`, too, for which such a candidate is none.
void LoadedKernel::refuse_cluster(const toolchain::LaunchConfig& config) const {
  std::array<std::uint32_t, 3> cluster = facts_.cluster;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const auto& attribute = config.attributes[i];
    const auto& size = attribute.value.cluster;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = {size.x, size.y, size.z};
  }
  fail(Errc::requirement, "cluster = " + shape(cluster) +
                              " blocks do not fit this device, or the slice of it that is used; " +
                              std::to_string(kPortableCluster) + " fit every device of 9.0 or newer");
}

void LoadedKernel::submit(const toolchain::LaunchConfig& config, void** parameters) const {
  const CUresult result = driver_.cuLaunchKernelEx(&config, function(), parameters, nullptr);
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  if (result == CUDA_ERROR_INVALID_CLUSTER_SIZE) refuse_cluster(config);
  driver_.check(result, "cuLaunchKernelEx", "launching " + name_);
}

void LoadedKernel::launch(CUstream stream, const kiln_arg_type* types, const void* const* data,
                          std::size_t count) const {
  PreparedLaunch prepared;
  prepare(types, data, count, prepared);
  launch_prepared(stream, prepared);
}

void LoadedKernel::launch_raw(const kiln_launch_config& in, void** parameters) const {
  refuse_other_process();
  toolchain::LaunchConfig config;
  config.grid_x = in.grid[0], config.grid_y = in.grid[1], config.grid_z = in.grid[2];
  config.block_x = in.block[0], config.block_y = in.block[1], config.block_z = in.block[2];
  config.shared_bytes = in.shared_bytes;
  config.stream = in.stream;
  if (in.shared_bytes > shared_allowed_.load(std::memory_order_relaxed)) allow_shared_memory(in.shared_bytes);
  Extras extras;
  if (in.cluster[0])
    extras.cluster = {in.cluster[0], std::max(1u, in.cluster[1]), std::max(1u, in.cluster[2])};
  if (extras.cluster[0] * extras.cluster[1] * extras.cluster[2] > kPortableCluster) allow_large_cluster();
  extras.pdl = in.pdl != 0;
  extras.cooperative = in.cooperative != 0;
  std::array<LaunchAttribute, 3> attributes;
  extras.attach(attributes, config);
  submit(config, parameters);
}

}  // namespace kiln::runtime
