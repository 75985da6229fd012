// The items of a block in shared memory: where a warp goes on to the next one, a load from the plan would take longer than a step.
#pragma once
#include "kiln/attention_plan.cuh"
#include "kiln/shared.cuh"

namespace kiln {

// The first KEPT of them, a third by each thread; those behind are loaded when they are needed.
template <int THREADS>
struct DecodeItems {
  static constexpr int THIRDS = AttentionPlan::ITEM / 4, KEPT = THREADS / THIRDS < 32 ? THREADS / THIRDS : 32;
  alignas(16) i32 words[KEPT * AttentionPlan::ITEM];
  i32 begin, end;

  // By all threads of the block, a barrier behind it. `meanwhile` is done while the loads are on their way.
  template <typename Meanwhile>
  __device__ __forceinline__ void take(const AttentionPlan& plan, i32 first, i32 last, const Meanwhile& meanwhile) {
    const int thread = threadIdx.x;
    Vec<i32, 4> own;
    const bool any = thread < min(last - first, KEPT) * THIRDS;
    if (any) own = load<4>(plan.words_of(first) + thread * 4);
    meanwhile();
    if (any) *reinterpret_cast<uint4*>(words + thread * 4) = {own.word[0], own.word[1], own.word[2], own.word[3]};
    if (thread == 0) begin = first, end = last;
  }

  __device__ __forceinline__ AttentionItem operator()(i32 i, const AttentionPlan& plan) const {
    const i32 nth = i - begin;
    return nth < KEPT ? AttentionPlan::item_of(load_shared<AttentionPlan::ITEM>(words + nth * AttentionPlan::ITEM)) : plan.item(i);
  }
};

}  // namespace kiln
