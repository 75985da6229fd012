// Keeps the warps of a block at about the same step, and the blocks of a launch, too.
#pragma once
#include "attention/work_list.cuh"
#include "kiln/mbarrier.cuh"

namespace kiln {

// The blocks of a launch have equal shares of the work, but not of the memory's speed. Without pacing, they
// end up to 3 % apart, and the launch takes as long as the slowest block. A block that is ahead therefore
// waits a little, and leaves the memory to the others. This made 256 requests of 4096 tokens 0.8 to 1.7 %
// faster, depending on the H200. ON is the manifest's tune parameter PACE. If it is false, no block waits.
// The results do not depend on it.
template <bool ON>
struct DecodePace {
  // The first steps of a block, which have no pacing: short launches do not need it.
  static constexpr i32 FREE = 8;
  // Steps from one meeting of the block's warps to the next. Once the meetings have begun, no warp is more
  // than 6 steps ahead of another warp.
  static constexpr i32 NEAR = 4;
  // Steps from one look at the other blocks to the next look. On an H200 they take 30 us together.
  static constexpr i32 TICK = 16;
  // A try takes about 1 us. After this number of tries in which no block ticks, the missing blocks have ended
  // or are not running.
  static constexpr int PATIENCE = 4;
  // Tries in one look; together they take about a TICK. If there are more blocks than can run at once, some
  // blocks tick while others wait for an SM. A look therefore needs this limit, too.
  static constexpr int TRIES = 32;

  Barrier& meeting;   // in shared memory: one arrival of each warp
  i32 steps = -FREE;  // steps of the block, where ON
  // Only thread 0 keeps the three values below.
  u32 base = 0;   // ticks of all blocks when this block began
  u32 ticks = 0;  // ticks of all blocks, as last read
  i32 busy = 0;   // blocks that have steps; 0: this block does not wait again

  __device__ __forceinline__ DecodePace(Barrier& meeting, const AttentionPlan& plan) : meeting(meeting) {
    if (ON && threadIdx.x == 0) base = plan.ticks(), busy = plan.busy();
  }

  // All lanes of all warps call it after each step of the block, whether the warp had tokens in it or not.
  __device__ __forceinline__ void step(const AttentionPlan& plan) {
    if (!ON || ++steps <= 0) return;
    if (steps % NEAR == 0 && threadIdx.x % 32 == 0) meeting.arrive();
    if (steps > NEAR && steps % NEAR == NEAR / 2) meeting.wait(steps / NEAR - 1 & 1);
    if (threadIdx.x == 0) {  // the meetings make the other warps wait for this warp
      if (steps % TICK == 0) ticks = plan.tick();
      if (steps > TICK && steps % TICK == 1) look(plan);  // one step later, because tick() takes a while
    }
  }

 private:
  // Waits until the ticks of all blocks reach busy * (n - 1/2), where this block has ticked n times. This is
  // the count if half of the blocks are as far as this block, and the others are one tick behind.
  __device__ __forceinline__ void look(const AttentionPlan& plan) {
    const i64 half = static_cast<i64>(2 * (steps / TICK) - 1) * busy;
    for (int tries = 0, same = 0; 2 * static_cast<i64>(ticks - base) < half; ++tries, ++same) {
      if (same == PATIENCE || tries == TRIES) {
        busy = 0;  // this block does not wait again
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
