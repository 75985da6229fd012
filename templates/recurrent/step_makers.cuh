// Which warp of a block makes the inputs of a recurrence's steps ready for the warps that have the state: one besides them, which works ahead of them;
// or, where there is hardly more than one step, the first of them, so that all registers are for states.
#pragma once

namespace kiln {

struct StepMakers {
  int warps;   // of the block that have columns of the state; they are the first
  bool makes;  // this one makes steps ready
  bool idle;   // this one has no columns

  // The warp's number comes by a shuffle: so the compiler knows that no warp diverges by it, and leaves checks of that out of the steps.
  __device__ __forceinline__ explicit StepMakers(bool besides) : warps(blockDim.y - besides) {
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.y), 0);
    idle = warp == warps;
    makes = besides ? idle : warp == 0;
  }
};

// The second argument of __launch_bounds__ of blocks of `warps`, and a maker, of which an SM shall hold `resident`: 16 leave a thread 128 registers,
// 12 leave 168, 8 all that there are.
__host__ __device__ constexpr int blocks_of_an_sm(int resident, int warps) {
  return resident > warps ? resident / (warps + 1) : 1;
}

}  // namespace kiln
