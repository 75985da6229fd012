// Plans of attention launches, made on the host.
//
//   kiln::AttentionLimits limits;
//   limits.max_requests = 256, limits.kv_heads = 8;
//   const kiln::AttentionPlanner planner(decode, limits);  // decode: a Kernel whose manifest has [work_list]
//   // allocate planner.plan_bytes() and planner.workspace_bytes() on the device, once
//   kiln::AttentionLengths lengths;
//   lengths.requests = n, lengths.kv_indptr = pages, lengths.last_page_len = last, lengths.page_size = 16;
//   const kiln::AttentionPlan plan = planner.plan(lengths, pinned);
//   cuMemcpyHtoDAsync(device_plan, pinned, plan.bytes, stream);  // then launch, or replay the graph
//
// Lengths that only the device knows: copy the plan of no requests once, and then launch the operator
// "attn_work_list" before each step. It writes the plan in device memory (docs/guide/attention/plan.md).
#pragma once

#include <cstddef>

#include "kiln/kernel.hpp"

namespace kiln {
inline namespace v1 {

/// The most that a batch may have (kiln_attention_limits in kiln.h).
struct AttentionLimits : kiln_attention_limits {
  AttentionLimits() noexcept : kiln_attention_limits{} { struct_size = sizeof(kiln_attention_limits); }
};

/// The lengths of a batch, in the caller's arrays (kiln_attention_lengths in kiln.h).
struct AttentionLengths : kiln_attention_lengths {
  AttentionLengths() noexcept : kiln_attention_lengths{} {
    struct_size = sizeof(kiln_attention_lengths);
    window_left = -1, window_right = -1;
  }
};

/// The size and the counts of a plan (kiln_attention_plan in kiln.h).
using AttentionPlan = kiln_attention_plan;

/// Makes plans for one kernel and its limits. Thread-safe. It is a view of the kernel: copies are cheap, and
/// it must not be used after the kernel.
class AttentionPlanner {
 public:
  /// Throws Error(invalid_argument) when the kernel has no [work_list] or the limits are not allowed.
  AttentionPlanner(Kernel kernel, const AttentionLimits& limits) : kernel_(kernel), limits_(limits) {
    sizes_.struct_size = sizeof sizes_;
    detail::check(kiln_kernel_attention_sizes(kernel_.handle(), &limits_, &sizes_));
  }

  /// Bytes of the plan, on the host and on the device. They depend on the limits alone.
  std::size_t plan_bytes() const noexcept { return static_cast<std::size_t>(sizes_.plan_bytes); }
  /// Bytes of the workspace on the device.
  std::size_t workspace_bytes() const noexcept { return static_cast<std::size_t>(sizes_.workspace_bytes); }
  /// Blocks of the grid. The launch takes this number as an argument.
  int workers() const noexcept { return sizes_.workers; }

  /// Writes a plan into `buffer`: plan_bytes() of host memory, aligned to 4 bytes. Makes no driver call.
  /// Throws Error(invalid_argument) before anything is written. The message names the array and the entry.
  AttentionPlan plan(const AttentionLengths& lengths, void* buffer) const {
    AttentionPlan out{};
    out.struct_size = sizeof out;
    detail::check(
        kiln_kernel_attention_plan(kernel_.handle(), &limits_, &lengths, buffer, plan_bytes(), &out));
    return out;
  }

 private:
  Kernel kernel_;
  AttentionLimits limits_;
  kiln_attention_sizes sizes_{};
};

}  // namespace v1
}  // namespace kiln
