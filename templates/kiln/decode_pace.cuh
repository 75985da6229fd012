// Keeps the warps of a block near each other, and the blocks of a launch.
#pragma once
#include "kiln/attention_plan.cuh"
#include "kiln/mbarrier.cuh"

namespace kiln {

// The blocks of a launch have equal shares of the work, but not of the memory's speed: left alone, they end up to 3 % apart, and the last one counts. So
// who is ahead waits a little, and leaves the memory to the others (256 requests of 4096 tokens: 0.8 to 1.7 % sooner, by the H200). What is computed does
// not depend on it. ON = false: the steps are counted, and that is all.
template <bool ON>
struct DecodePace {
  static constexpr i32 FREE = 8;       // steps before any of it: short launches do without
  static constexpr i32 NEAR = 4;       // steps from one meeting of the block's warps to the next: none is further ahead of another one than 6
  static constexpr i32 TICK = 16;      // steps, of 30 us or so, between two looks at the other blocks
  static constexpr int PATIENCE = 16;  // tries, 1 us each. Blocks that are later still do not run at all: there is nothing to wait for

  Barrier& meeting;         // in shared memory: an arrival of each warp
  i32 steps = -FREE;        // of the block
  u32 base = 0, ticks = 0;  // of all blocks: when the launch began, and as far as is known. Thread 0's, as is `sharing`
  i32 sharing = 0;          // blocks that have items

  __device__ __forceinline__ DecodePace(Barrier& meeting, const AttentionPlan& plan) : meeting(meeting) {
    if (ON && threadIdx.x == 0) base = plan.ticks(), sharing = plan.sharing();
  }

  // Behind each step of the block, whether the warp had tokens of it or not. By all lanes.
  __device__ __forceinline__ void step(const AttentionPlan& plan) {
    ++steps;
    if (!ON || steps <= 0) return;
    if (steps % NEAR == 0 && threadIdx.x % 32 == 0) meeting.arrive();
    if (steps > NEAR && steps % NEAR == NEAR / 2) meeting.wait(steps / NEAR - 1 & 1);
    if (threadIdx.x == 0) {  // the other warps wait for this one
      if (steps % TICK == 0) ticks = plan.tick();
      if (steps > TICK && steps % TICK == 1) look(plan);  // not at once: the answer takes a while
    }
  }

  // Fewer than `count` steps, so far.
  __device__ __forceinline__ bool fewer(i32 count) const { return steps < count - FREE; }

 private:
  // Waits until half of the blocks have come as far.
  __device__ __forceinline__ void look(const AttentionPlan& plan) {
    const i64 half = static_cast<i64>(2 * (steps / TICK) - 1) * sharing;
    for (int n = 0; 2 * static_cast<i64>(ticks - base) < half; ++n) {
      if (n == PATIENCE) {
        sharing = 0;  // nor later on
        return;
      }
      __nanosleep(200);
      ticks = plan.ticks();
    }
  }
};

}  // namespace kiln
