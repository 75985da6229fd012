// Launches. They are checked like the driver checks them; arguments are
// copied with the sizes that the image declares.
#include <cstring>

#include "tests/support/fake_driver/world.hpp"

namespace kiln::fake {

kiln_fake_launch Launch::view() const {
  kiln_fake_launch out{};
  out.kernel = kernel.c_str();
  const unsigned grid[] = {config.grid_x, config.grid_y, config.grid_z},
                 block[] = {config.block_x, config.block_y, config.block_z};
  std::memcpy(out.grid, grid, sizeof grid);
  std::memcpy(out.block, block, sizeof block);
  std::memcpy(out.cluster, cluster, sizeof cluster);
  out.shared_bytes = config.shared_bytes;
  out.cooperative = cooperative;
  out.programmatic = programmatic;
  out.captured = captured;
  out.stream = config.stream;
  out.argument_count = static_cast<unsigned>(arguments.size());
  out.arguments = arguments.data();
  out.argument_sizes = sizes.data();
  return out;
}

namespace {

CUresult read_attributes(Launch& launch) {
  const LaunchConfig& config = launch.config;
  if (config.attribute_count && !config.attributes) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const LaunchAttribute& attribute = config.attributes[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) launch.cooperative = attribute.value.value != 0;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      launch.programmatic = attribute.value.value != 0;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      std::memcpy(launch.cluster, &attribute.value.cluster, sizeof launch.cluster);
  }
  return CUDA_SUCCESS;
}

CUresult check_geometry(const World& w, Launch& launch, const CUfunc_st& function) {
  const CubinKernel& facts = *function.kernel->facts;
  const LaunchConfig& c = launch.config;
  const unsigned grid[] = {c.grid_x, c.grid_y, c.grid_z}, block[] = {c.block_x, c.block_y, c.block_z};
  std::uint64_t threads = 1, blocks_per_cluster = 1;
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || block[i] == 0 || block[i] > 1024) return CUDA_ERROR_INVALID_VALUE;
    if (facts.required_block[0] && block[i] != facts.required_block[i]) return CUDA_ERROR_INVALID_VALUE;
    threads *= block[i];
  }
  if (c.grid_x > 0x7fffffff || c.grid_y > 65535 || c.grid_z > 65535) return CUDA_ERROR_INVALID_VALUE;
  if (threads > (facts.max_threads ? facts.max_threads : 1024)) return CUDA_ERROR_INVALID_VALUE;
  if (c.shared_bytes > static_cast<unsigned>(function.max_dynamic_shared)) return CUDA_ERROR_INVALID_VALUE;
  if (launch.cluster[0] == 0)
    std::memcpy(launch.cluster, facts.cluster.data(), sizeof launch.cluster);  // __cluster_dims__
  if (launch.cluster[0] == 0) return CUDA_SUCCESS;
  if (w.arch < 90) return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; ++i) {
    if (launch.cluster[i] == 0 || grid[i] % launch.cluster[i] != 0) return CUDA_ERROR_INVALID_VALUE;
    blocks_per_cluster *= launch.cluster[i];
  }
  return blocks_per_cluster <= (function.non_portable_cluster ? 16u : 8u) ? CUDA_SUCCESS
                                                                          : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_arguments(Launch& launch, const CubinKernel& facts, void** params) {
  if (!params && !facts.arguments.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const CubinArgument& argument : facts.arguments) {
    const void* from = params[argument.ordinal];
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    auto bytes = std::make_unique<std::max_align_t[]>(argument.size / sizeof(std::max_align_t) + 1);
    std::memcpy(bytes.get(), from, argument.size);
    launch.arguments.push_back(bytes.get());
    launch.sizes.push_back(argument.size);
    launch.bytes.push_back(std::move(bytes));
  }
  return CUDA_SUCCESS;
}

}  // namespace

void run(World& w, const std::shared_ptr<const Launch>& launch) {
  w.launches.push_back(launch);
  if (!w.callback) return;
  const kiln_fake_launch view = launch->view();
  w.callback(&view, w.callback_user);
}

CUresult cuLaunchKernelEx(const LaunchConfig* config, CUfunction function, void** params, void** extra) {
  if (world().quiet.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  KILN_FAKE_ENTER(cuLaunchKernelEx);
  if (!config || extra) return CUDA_ERROR_INVALID_VALUE;  // kiln passes params only
  if (const auto bad = context_state(w)) return bad;
  if (!w.functions.count(function) || !valid_stream(w, config->stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (config->stream && config->stream->context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
  if (function->context != current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  const CubinKernel& facts = *function->kernel->facts;
  auto launch = std::make_shared<Launch>();
  launch->kernel = facts.name;
  launch->config = *config;
  if (const auto bad = read_attributes(*launch)) return bad;
  launch->config.attributes = nullptr;  // points into the caller's memory
  launch->config.attribute_count = 0;
  if (const auto bad = check_geometry(w, *launch, *function)) return bad;
  if (const auto bad = copy_arguments(*launch, facts, params)) return bad;
  if (!function->loaded)
    if (const auto refused = loading_allowed(w))
      return refused;  // a lazily loaded function loads at its first launch
  function->loaded = true;
  return enqueue(w, config->stream, std::move(launch));
}

}  // namespace kiln::fake
