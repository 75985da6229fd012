// Keeps the warps of a block near each other, and the blocks of a launch.
#pragma once
#include "attention/work_list.cuh"
#include "kiln/mbarrier.cuh"

namespace kiln {

// The blocks of a launch have equal shares of the work, but not of the memory's speed: left alone, they end up
// to 3 % apart, and the launch takes as long as the last one. So a block that is ahead waits a little, and
// leaves the memory to the others. That made 256 requests of 4096 tokens 0.8 to 1.7 % faster, depending on the
// H200; the manifest's PACE is a tune parameter. The results do not depend on it. ON = false: no block waits.
template <bool ON>
struct DecodePace {
  // Steps of a block without any pacing at its begin: short launches do without it.
  static constexpr i32 FREE = 8;
  // Steps from one meeting of the block's warps to the next. No warp is more than 6 steps ahead of another
  // one once the meetings have begun.
  static constexpr i32 NEAR = 4;
  // Steps from one look at the other blocks to the next: 30 us together, on an H200.
  static constexpr i32 TICK = 16;
  // Tries of about 1 us each in which no block ticks. After so many, the missing blocks have ended or are not
  // running.
  static constexpr int PATIENCE = 4;
  // Tries in one look, about a TICK together. Where there are more blocks than run at once, some tick while
  // others wait for an SM.
  static constexpr int TRIES = 32;

  Barrier& meeting;   // in shared memory: one arrival of each warp
  i32 steps = -FREE;  // steps of the block, where ON
  // Thread 0 alone keeps the three below.
  u32 base = 0;   // ticks of all blocks when this one began
  u32 ticks = 0;  // ticks of all blocks, as far as is known
  i32 busy = 0;   // blocks that have steps; 0: this block waits no more

  __device__ __forceinline__ DecodePace(Barrier& meeting, const AttentionPlan& plan) : meeting(meeting) {
    if (ON && threadIdx.x == 0) base = plan.ticks(), busy = plan.busy();
  }

  // All lanes of all warps call it after each step of the block, whether the warp had tokens in it or not.
  __device__ __forceinline__ void step(const AttentionPlan& plan) {
    if (!ON || ++steps <= 0) return;
    if (steps % NEAR == 0 && threadIdx.x % 32 == 0) meeting.arrive();
    if (steps > NEAR && steps % NEAR == NEAR / 2) meeting.wait(steps / NEAR - 1 & 1);
    if (threadIdx.x == 0) {  // the other warps wait for this one
      if (steps % TICK == 0) ticks = plan.tick();
      if (steps > TICK && steps % TICK == 1) look(plan);  // one step later: the answer takes a while
    }
  }

 private:
  // Waits until the blocks have ticked as often as if half of them were as far as this one, and the others one
  // tick behind.
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
