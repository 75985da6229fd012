// Keeps the warps of a block near each other, and the blocks of a launch.
#pragma once
#include "attention/work_list.cuh"
#include "kiln/mbarrier.cuh"

namespace kiln {

// The blocks of a launch have equal shares of the work, but not of the memory's speed: left alone, they end up to 3 % apart, and the last one counts. So
// who is ahead waits a little, and leaves the memory to the others (256 requests of 4096 tokens: 0.8 to 1.7 % sooner, by the H200). What is computed does
// not depend on it. ON = false: nobody waits.
template <bool ON>
struct DecodePace {
  static constexpr i32 FREE = 8;  // steps before any of it: short launches do without
  static constexpr i32 NEAR =
      4;  // steps from one meeting of the block's warps to the next: no warp is further ahead of another one than 6, behind those
  static constexpr i32 TICK =
      16;  // steps from one look at the other blocks to the next: 30 us together, on an H200
  static constexpr int PATIENCE =
      4;  // tries of about 1 us without a tick of anybody: who is missing has ended, or does not run
  static constexpr int TRIES =
      32;  // in one look, about a TICK: of more blocks than run at once, some tick while others wait for an SM

  Barrier& meeting;   // in shared memory: an arrival of each warp
  i32 steps = -FREE;  // of the block, where ON
  u32 base = 0,
      ticks = 0;  // of all blocks: when this one began, and as far as is known. Thread 0's, as is `busy`
  i32 busy = 0;   // blocks that have steps

  __device__ __forceinline__ DecodePace(Barrier& meeting, const AttentionPlan& plan) : meeting(meeting) {
    if (ON && threadIdx.x == 0) base = plan.ticks(), busy = plan.busy();
  }

  // Behind each step of the block, whether the warp had tokens of it or not. By all lanes.
  __device__ __forceinline__ void step(const AttentionPlan& plan) {
    if (!ON || ++steps <= 0) return;
    if (steps % NEAR == 0 && threadIdx.x % 32 == 0) meeting.arrive();
    if (steps > NEAR && steps % NEAR == NEAR / 2) meeting.wait(steps / NEAR - 1 & 1);
    if (threadIdx.x == 0) {  // the other warps wait for this one
      if (steps % TICK == 0) ticks = plan.tick();
      if (steps > TICK && steps % TICK == 1) look(plan);  // not at once: the answer takes a while
    }
  }

 private:
  // Waits until the blocks have as many ticks as if half of them had come as far, and the others one tick less.
  __device__ __forceinline__ void look(const AttentionPlan& plan) {
    const i64 half = static_cast<i64>(2 * (steps / TICK) - 1) * busy;
    for (int tries = 0, same = 0; 2 * static_cast<i64>(ticks - base) < half; ++tries, ++same) {
      if (same == PATIENCE || tries == TRIES) {
        busy = 0;  // nor later on
        return;
      }
      asm volatile("nanosleep.u32 200;");  // clang 14 has no __nanosleep()
      const u32 now = plan.ticks();
      if (now != ticks) same = 0;
      ticks = now;
    }
  }
};

}  // namespace kiln
