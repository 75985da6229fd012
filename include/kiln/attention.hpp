// Host plans of attention launches.
//
//   kiln::AttentionLimits limits;
//   limits.max_requests = 256, limits.kv_heads = 8;
//   const kiln::AttentionPlanner planner(decode, limits);  // decode: a Kernel whose manifest has [work_list]
//   // on the device: planner.plan_bytes() and planner.workspace_bytes(), once
//   kiln::AttentionLengths lengths;
//   lengths.requests = n, lengths.kv_indptr = pages, lengths.last_page_len = last, lengths.page_size = 16;
//   const kiln::AttentionPlan plan = planner.plan(lengths, pinned);
//   cuMemcpyHtoDAsync(device_plan, pinned, plan.bytes, stream);  // then the launch, or its graph's replay
#pragma once

#include <cstddef>

#include "kiln/kernel.hpp"

namespace kiln {
inline namespace v1 {

/// What no batch of a buffer may pass: see kiln_attention_limits in kiln.h.
struct AttentionLimits : kiln_attention_limits {
  AttentionLimits() noexcept : kiln_attention_limits{} { struct_size = sizeof(kiln_attention_limits); }
};

/// The lengths of a batch, in arrays of the caller's: see kiln_attention_lengths in kiln.h.
struct AttentionLengths : kiln_attention_lengths {
  AttentionLengths() noexcept : kiln_attention_lengths{} {
    struct_size = sizeof(kiln_attention_lengths);
    window_left = -1;
  }
};

/// What a plan came to: see kiln_attention_plan in kiln.h.
using AttentionPlan = kiln_attention_plan;

/// Plans for one kernel and its limits. A view of the kernel, as copyable and as long-lived as that.
/// Thread-safe.
class AttentionPlanner {
 public:
  /// Throws Error(invalid_argument): the kernel has no [work_list], or limits that can never be right.
  AttentionPlanner(Kernel kernel, const AttentionLimits& limits) : kernel_(kernel), limits_(limits) {
    sizes_.struct_size = sizeof sizes_;
    detail::check(kiln_kernel_attention_sizes(kernel_.handle(), &limits_, &sizes_));
  }

  /// Of the plan, on the host and on the device. They follow from the limits alone.
  std::size_t plan_bytes() const noexcept { return static_cast<std::size_t>(sizes_.plan_bytes); }
  std::size_t workspace_bytes() const noexcept { return static_cast<std::size_t>(sizes_.workspace_bytes); }
  /// Blocks of the grid: an argument of the launch.
  int workers() const noexcept { return sizes_.workers; }

  /// Writes a plan into plan_bytes() of host memory, from an address that 4 divides. Makes no driver call.
  /// Throws Error(invalid_argument) naming the array and the entry, before anything is written.
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
