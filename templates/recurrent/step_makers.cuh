// StepMakers says which warp of a block makes the inputs of a recurrence's steps ready.
//
// Usually this is an extra warp, which works ahead of the warps that hold the state. With hardly more than
// one step it is the first warp with state, so that all registers are for states.
#pragma once

namespace kiln {

struct StepMakers {
  int warps;   // the block's first warps, which hold columns of the state
  bool makes;  // this warp makes steps ready
  bool idle;   // this warp holds no columns

  // With `besides`, the last of the blockDim.y warps is an extra warp that makes the steps ready. The warp's
  // number is read through a shuffle, so that the compiler knows that all lanes have the same number. It then
  // leaves checks for divergence out of the steps.
  __device__ __forceinline__ explicit StepMakers(bool besides) : warps(blockDim.y - besides) {
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.y), 0);
    idle = warp == warps;
    makes = besides ? idle : warp == 0;
  }
};

// Returns the second argument of __launch_bounds__ for blocks of `warps` warps and a maker. An SM is to hold
// `resident` warps: 16 leave a thread 128 registers, 12 leave 168, 8 leave all it can have.
__host__ __device__ constexpr int blocks_of_an_sm(int resident, int warps) {
  return resident > warps ? resident / (warps + 1) : 1;
}

}  // namespace kiln
