// Blocks that merge the parts of a tile together.
//
// The block that writes the last part of a tile is the one that may merge it (attention/work_list.cuh). Alone it reads all parts
// through one SM, which takes longer than the products of a short part. So a block that has nothing else to do waits for the
// last part, and then takes a share of the merge. Nobody depends on it: it waits for a limited time only, because the blocks of
// the other parts may not be running. If one gives up, the block of the last part merges alone.
//
// Results do not depend on who merges what.
#pragma once
#include "attention/work_list.cuh"

namespace kiln {

// A block's share of the slices of a tile: slice `first`, and every `step`-th after it. Without a share, `step` is 0.
struct MergeShare {
  i32 first, step;
};

// The counter of a split tile, which is 0 before and after a launch. One thread of a block calls each function.
struct MergeCounter {
  // One word has the parts that were written, the blocks that waited for the last part, and how many of these have left.
  enum : u32 { PART = 1, WAITER = 1u << 16, LEAVER = 1u << 23, GAVE_UP = 1u << 30 };
  enum : int { MOST_WAITERS = 127 };
  // Loads while a block waits, of about 0.7 us each. Parts that run together end at about the same time.
  enum : int { TRIES = 64 };

  i32* word;
  u32 last_state;  // the state before this block left
  bool has_waited;

  // Counts the block's part as written. Call it after a barrier of all threads that stored the part. After the next barrier, a
  // block with a share sees all parts. `waits`: the block has nothing else to do.
  __device__ __forceinline__ MergeShare arrive(const AttentionItem& item, bool waits) {
    const u32 parts = item.parts;
    waits = waits && item.part < MOST_WAITERS;
    has_waited = false;
    const u32 before = add(waits ? WAITER + PART : PART);
    const i32 rank = waiters(before);
    if (arrived(before) + 1 == parts) {
      if (leavers(before) == waiters(before)) {  // nobody waits any more
        *word = 0;
        return {0, 1};
      }
      if (waits) begin_to_leave();
      if (alone(before)) return {0, 1};
      return waits ? MergeShare{rank, rank + 1} : MergeShare{0, 0};
    }
    if (!waits) return {0, 0};
    u32 now = 0;
#pragma unroll 1
    for (int i = 0; i < TRIES && arrived(now) != parts; ++i) now = look();
    while (arrived(now) != parts) {
      const u32 found = exchange(now, now + LEAVER | GAVE_UP);
      if (found == now) return {0, 0};
      now = found;
    }
    begin_to_leave();
    return alone(now) ? MergeShare{0, 0} : MergeShare{rank, waiters(now)};
  }
  // Ends what arrive() began. It comes late, because the block need not wait for its last count before.
  __device__ __forceinline__ void leave() {
    if (has_waited && leavers(last_state) + 1 == waiters(last_state)) *word = 0;
  }

 private:
  __device__ __forceinline__ void begin_to_leave() {
    has_waited = true;
    asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(last_state)
                 : "l"(word), "r"(static_cast<u32>(LEAVER))
                 : "memory");
  }
  __device__ static __forceinline__ u32 arrived(u32 state) { return state % WAITER; }
  __device__ static __forceinline__ i32 waiters(u32 state) { return state / WAITER % (LEAVER / WAITER); }
  __device__ static __forceinline__ i32 leavers(u32 state) { return state / LEAVER % (GAVE_UP / LEAVER); }
  __device__ static __forceinline__ bool alone(u32 state) { return (state & GAVE_UP) != 0; }

  // Adds to the state. Releases the stores of this block, and acquires the stores of the other blocks. Returns the state before.
  __device__ __forceinline__ u32 add(u32 more) const {
    u32 before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(more)
                 : "memory");
    return before;
  }
  __device__ __forceinline__ u32 look() const {
    u32 state;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(state) : "l"(word) : "memory");
    return state;
  }
  // Replaces the state if it is `expected`. Returns the state before.
  __device__ __forceinline__ u32 exchange(u32 expected, u32 state) const {
    u32 before;
    asm volatile("atom.cas.acq_rel.gpu.global.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(word), "r"(expected), "r"(state)
                 : "memory");
    return before;
  }
};

}  // namespace kiln
