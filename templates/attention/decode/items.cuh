// Keeps the items of a block in shared memory. When a warp goes on to its next item, a load from the work
// list would take longer than a step.
#pragma once
#include "attention/work_list.cuh"
#include "kiln/shared.cuh"

namespace kiln {

// Keeps the first KEPT items. The caller has the first item. For the others, each thread loads a third of an
// item. Items after the kept ones are loaded when they are needed.
template <int THREADS>
struct DecodeItems {
  static constexpr int THIRDS = AttentionPlan::ITEM / 4, KEPT = THREADS / THIRDS < 32 ? THREADS / THIRDS : 32;
  alignas(16) i32 words[KEPT * AttentionPlan::ITEM];
  i32 begin, end;

  // Begins to load the kept items after the first item, and returns the thread's third of an item. All
  // threads of the block call it. The block has the items [first, last) of the work list.
  __device__ __forceinline__ Vec<i32, 4> ask(const AttentionPlan& plan, i32 first, i32 last) const {
    const int thread = threadIdx.x;
    Vec<i32, 4> third;
    if (behind_first(first, last)) third = load<4>(plan.words_of(first) + thread * 4);
    return third;
  }
  // Writes the first item, the thirds that ask() has loaded, `begin` and `end`. All threads call it. A
  // barrier of the block must follow before any thread reads them.
  __device__ __forceinline__ void keep(const Vec<i32, 4>& third, const AttentionItem& first_item, i32 first,
                                       i32 last) {
    const int thread = threadIdx.x;
    if (behind_first(first, last))
      *reinterpret_cast<uint4*>(words + thread * 4) = {third.word[0], third.word[1], third.word[2],
                                                       third.word[3]};
    if (thread == 0) *reinterpret_cast<AttentionItem*>(words) = first_item, begin = first, end = last;
  }

  // Returns item i of the work list. REQUIRES: begin <= i < end.
  __device__ __forceinline__ AttentionItem operator()(i32 i, const AttentionPlan& plan) const {
    const i32 nth = i - begin;
    return nth < KEPT
               ? AttentionPlan::item_of(load_shared<AttentionPlan::ITEM>(words + nth * AttentionPlan::ITEM))
               : plan.item(i);
  }

 private:
  __device__ static __forceinline__ bool behind_first(i32 first, i32 last) {
    return threadIdx.x >= THIRDS && threadIdx.x < min(last - first, KEPT) * THIRDS;
  }
};

}  // namespace kiln
