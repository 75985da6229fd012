// The C ABI over the work lists of attention launches.
#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/plan.hpp"
#include "attention/work_list.hpp"
#include "runtime/abi/common.hpp"

using namespace kiln;
using namespace kiln::runtime;
using namespace kiln::runtime::c_api;

namespace {

/// A kernel whose manifest has a work list of kind "attention".
struct Planned {
  const LoadedKernel& kernel;
  const source::WorkListSpec& list = attention::work_list_of(kernel.manifest());
  const WorkListFacts& facts = kernel.work_list();
  attention::KernelShape shape = attention::shape_of(facts.kernel);
};

/// Runs body(Planned). The message of an error begins with the kernel's specialisation.
template <class Body>
kiln_status guarded_for(const kiln_kernel* kernel, Body&& body) noexcept {
  return guarded([&] {
    const LoadedKernel& k = of(kernel);
    try {
      body(Planned{k});
    } catch (const Error& error) {
      throw Error(error.code(), k.specialization() + ": " + error.what());
    }
  });
}

attention::Limits limits_of(const Planned& planned, const kiln_attention_limits* given) {
  require(given != nullptr, "limits is null");
  const kiln_attention_limits limits = sized(given);
  return {.max_requests = limits.max_requests,
          .max_tokens = limits.max_tokens != 0 ? limits.max_tokens : limits.max_requests,
          .kv_heads = limits.kv_heads,
          .workers = limits.workers != 0 ? limits.workers : planned.facts.workers,
          .on_device = planned.list.on_device};
}

attention::Lengths lengths_of(const kiln_attention_lengths* given) {
  require(given != nullptr, "lengths is null");
  kiln_attention_lengths lengths = sized(given);
  constexpr std::size_t kBeforeWindowRight = offsetof(kiln_attention_lengths, window_right);
  if (given->struct_size <= kBeforeWindowRight) lengths.window_right = -1;  // a caller of before 0.2
  return {.requests = lengths.requests,
          .qo_indptr = lengths.qo_indptr,
          .kv_indptr = lengths.kv_indptr,
          .kv_len = lengths.kv_len,
          .last_page_len = lengths.last_page_len,
          .page_size = lengths.page_size,
          .window_left = lengths.window_left,
          .window_right = lengths.window_right};
}

}  // namespace

extern "C" {

kiln_status kiln_kernel_attention_sizes(const kiln_kernel* kernel, const kiln_attention_limits* limits,
                                        kiln_attention_sizes* out) {
  return guarded_for(kernel, [&](const Planned& planned) {
    require_sized(out);
    const attention::Limits within = limits_of(planned, limits);
    kiln_attention_sizes sizes{};
    sizes.plan_bytes = static_cast<std::uint64_t>(attention::work_list_words(planned.shape, within)) * 4;
    sizes.workspace_bytes = workspace_bytes(planned.kernel.manifest(), planned.list,
                                            planned.kernel.fixed_slots(), within.workers);
    sizes.workers = static_cast<std::int32_t>(within.workers);
    fill_sized(out, sizes);
  });
}

kiln_status kiln_kernel_attention_plan(const kiln_kernel* kernel, const kiln_attention_limits* limits,
                                       const kiln_attention_lengths* lengths, void* buffer,
                                       size_t buffer_bytes, kiln_attention_plan* out) {
  return guarded_for(kernel, [&](const Planned& planned) {
    require(buffer != nullptr, "buffer is null");
    require(reinterpret_cast<std::uintptr_t>(buffer) % 4 == 0, "buffer is not aligned to 4 bytes");
    if (out) require_sized(out);
    const attention::Summary made =
        attention::write_work_list(planned.shape, limits_of(planned, limits), lengths_of(lengths),
                                   std::span(static_cast<std::int32_t*>(buffer), buffer_bytes / 4));
    if (!out) return;
    kiln_attention_plan said{};
    said.bytes = static_cast<std::uint64_t>(made.words) * 4;
    said.items = static_cast<std::uint32_t>(made.items);
    said.parts = static_cast<std::uint32_t>(made.slots);
    said.workers = static_cast<std::uint32_t>(made.workers);
    fill_sized(out, said);
  });
}

}  // extern "C"
