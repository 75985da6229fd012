#include "runtime/loaded_kernel.hpp"

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::runtime {

using namespace toolchain;

namespace {
/// Dynamic shared memory that every kernel may have without being asked for.
constexpr std::int64_t kFreeSharedBytes = 48 << 10;
}  // namespace

LoadedKernel::LoadedKernel(const Driver& driver, const DeviceFacts& device,
                           std::shared_ptr<const source::Template> origin, source::Which which,
                           source::Resolved resolved, Obtained obtained, Library library)
    : driver_(driver),
      origin_(std::move(origin)),
      which_(which),
      resolved_(std::move(resolved)),
      obtained_(std::move(obtained)),
      library_(std::move(library)),
      name_(resolved_.specialization.to_string()),
      shared_allowed_(kFreeSharedBytes - obtained_.image->facts.shared_bytes) {
  const source::Manifest& m = manifest();
  std::copy(resolved_.slots.begin(), resolved_.slots.end(), base_slots_.begin());
  base_slots_[static_cast<std::size_t>(m.slots.sms_slot())] = device.sms;
  base_slots_[static_cast<std::size_t>(m.slots.smem_optin_slot())] = device.smem_optin;
  base_slots_[static_cast<std::size_t>(m.slots.l2_slot())] = device.l2;
  const auto& grid = spec().grid;
  wants_occupancy_ = std::any_of(grid.begin(), grid.end(), [&](const source::Expression& e) {
    return std::binary_search(e.reads().begin(), e.reads().end(), m.slots.occupancy_slot());
  });
}

const source::LaunchSpec& LoadedKernel::spec() const noexcept {
  return which_ == source::Which::reference ? manifest().reference->launch : manifest().kernel.launch;
}

void LoadedKernel::fail(Errc code, const std::string& what) const { throw Error(code, name_ + ": " + what); }

void LoadedKernel::set_geometry(PreparedLaunch& out) const {
  const source::LaunchSpec& s = spec();
  const auto dimension = [&](const std::vector<source::Expression>& from, std::size_t i, const char* name,
                             std::int64_t limit) {
    if (i >= from.size()) return 1u;
    const std::int64_t value = from[i].evaluate(out.slots);
    if (value < 0 || value > limit) {
      fail(Errc::requirement, std::string(name) + "[" + std::to_string(i) + "] = " + from[i].text() + " = " +
                                  std::to_string(value) + " is not in 0.." + std::to_string(limit));
    }
    return static_cast<unsigned>(value);
  };
  toolchain::LaunchConfig& c = out.config;
  c.block_x = dimension(s.block, 0, "block", 1024), c.block_y = dimension(s.block, 1, "block", 1024),
  c.block_z = dimension(s.block, 2, "block", 64);
  const std::int64_t shared = s.smem.empty() ? 0 : s.smem.evaluate(out.slots);
  const std::int64_t optin = base_slots_[static_cast<std::size_t>(manifest().slots.smem_optin_slot())];
  if (shared < 0 || shared + obtained_.image->facts.shared_bytes > optin) {
    fail(Errc::requirement, "smem = " + s.smem.text() + " = " + std::to_string(shared) + " bytes (and " +
                                std::to_string(obtained_.image->facts.shared_bytes) +
                                " static) do not fit this device's " + std::to_string(optin));
  }
  c.shared_bytes = static_cast<unsigned>(shared);
  if (shared > shared_allowed_.load(std::memory_order_relaxed)) allow_shared_memory(shared);
  if (wants_occupancy_) {
    int blocks = 0;
    driver_.check(driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                      &blocks, function(), static_cast<int>(c.block_x * c.block_y * c.block_z),
                      static_cast<std::size_t>(shared)),
                  "cuOccupancyMaxActiveBlocksPerMultiprocessor", name_);
    out.slots[static_cast<std::size_t>(manifest().slots.occupancy_slot())] = blocks;
  }
  c.grid_x = dimension(s.grid, 0, "grid", INT32_MAX), c.grid_y = dimension(s.grid, 1, "grid", 65535),
  c.grid_z = dimension(s.grid, 2, "grid", 65535);
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

void LoadedKernel::launch_prepared(CUstream stream, PreparedLaunch& prepared) const {
  const source::LaunchSpec& s = spec();
  toolchain::LaunchConfig config = prepared.config;
  if (config.grid_x == 0 || config.grid_y == 0 || config.grid_z == 0)
    return;  // nothing to do: zero rows are a valid call
  config.stream = stream;
  Extras extras;
  if (!s.cluster.empty()) {
    const auto size = [&](std::size_t i) {
      return i < s.cluster.size() ? static_cast<unsigned>(s.cluster[i].evaluate(prepared.slots)) : 1u;
    };
    const unsigned x = size(0), y = size(1), z = size(2);
    if (x * y * z > 1)
      extras.cluster = {x, y, z};  // 1 is no cluster, and archs before 9.0 know no attribute for it
  }
  extras.pdl = s.pdl && resolved_.arch.number >= 90;
  extras.cooperative = s.cooperative;
  submit(config, extras, prepared.parameters.data());
}

void LoadedKernel::submit(toolchain::LaunchConfig& config, const Extras& extras, void** parameters) const {
  LaunchAttribute attributes[3];
  config.attributes = attributes;
  const auto add = [&](int id) -> LaunchAttribute& {
    LaunchAttribute& a = attributes[config.attribute_count++];
    a.id = id;
    return a;
  };
  if (extras.cluster[0]) {
    auto& cluster = add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.cluster;
    cluster.x = extras.cluster[0], cluster.y = extras.cluster[1], cluster.z = extras.cluster[2];
  }
  if (extras.pdl) add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).value.value = 1;
  if (extras.cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.value = 1;
  const CUresult result = driver_.cuLaunchKernelEx(&config, function(), parameters, nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    driver_.check(result, "cuLaunchKernelEx", "launching " + name_);
}

void LoadedKernel::launch(CUstream stream, const kiln_arg_type* types, const void* const* data,
                          std::size_t count) const {
  PreparedLaunch prepared;
  prepare(types, data, count, prepared);
  launch_prepared(stream, prepared);
}

void LoadedKernel::launch_raw(const kiln_launch_config& in, void** parameters) const {
  toolchain::LaunchConfig config;
  config.grid_x = in.grid[0], config.grid_y = in.grid[1], config.grid_z = in.grid[2];
  config.block_x = in.block[0], config.block_y = in.block[1], config.block_z = in.block[2];
  config.shared_bytes = in.shared_bytes;
  config.stream = in.stream;
  if (in.shared_bytes > shared_allowed_.load(std::memory_order_relaxed)) allow_shared_memory(in.shared_bytes);
  Extras extras;
  if (in.cluster[0])
    extras.cluster = {in.cluster[0], std::max(1u, in.cluster[1]), std::max(1u, in.cluster[2])};
  extras.pdl = in.pdl != 0;
  extras.cooperative = in.cooperative != 0;
  submit(config, extras, parameters);
}

}  // namespace kiln::runtime
