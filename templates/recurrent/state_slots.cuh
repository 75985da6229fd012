// StateSlots finds the states of sequences in a pool, as inference engines keep them.
#pragma once
#include "recurrent/sequences.cuh"

namespace kiln {

// The place of a sequence's state.
enum class Slots {
  none,      // sequence n has state n
  sequence,  // state_indices gives the slot of each sequence in the pool
  token,  // a sequence starts from its slot; state_out_indices gives the slot for the state after each token
};

// The states of a call before its first token and after its last one, and the places of the sequences there.
// `stride` is the number of elements from a slot to the next.
template <typename STATE>
struct StatePools {
  const STATE* initial;  // null: zeros
  STATE* final;          // null: not stored
  const i32* indices;
  const u8* has_initial;
  const i32* out_indices;
  i64 stride;
};

// Returns entry n of `indices`: a sequence's slot in the pool, where a negative slot means that the sequence has no state, or
// a token's.
// The load keeps program order (kiln/vector.cuh). REQUIRES: with Slots::none, indices is not read.
template <Slots SLOTS>
__device__ __forceinline__ i32 state_slot(const i32* indices, i32 n) {
  if constexpr (SLOTS == Slots::none) return n;
  return static_cast<i32>(load<1>(indices + n).word[0]);
}

// Returns false if the sequence starts from zeros, although it has a slot. `has_initial_state` has a byte for
// each sequence; null: all have an initial state.
__device__ __forceinline__ bool starts_from_state(const u8* has_initial_state, i32 n) {
  return !has_initial_state || load<1>(has_initial_state + n).word[0] != 0;
}

// Returns in lane i the slot that receives the state after token first + i. It is negative if that state is not
// stored, and for lanes from `steps` on and tokens from `end` on. REQUIRES: steps <= 32.
__device__ __forceinline__ i32 load_out_slots(const i32* indices, i64 first, i64 end, int steps) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane >= steps || first + lane >= end) return -1;
  return static_cast<i32>(load<1>(indices + first + lane).word[0]);
}

// Returns the slot of a step that load_out_slots() has returned to lane `step`. REQUIRES: all lanes of the warp
// call it.
__device__ __forceinline__ i32 out_slot(i32 slots, int step) { return __shfl_sync(0xffffffffu, slots, step); }

// Writes zeros into the columns [first, last) of the tokens [begin, end) of one head. All threads of the block
// take part. `out` points to column 0 of token 0, and tokens are `stride` elements apart.
template <typename T>
__device__ __forceinline__ void zero_outputs(T* out, i64 stride, i64 begin, i64 end, int first, int last) {
  const int threads = static_cast<int>(blockDim.x * blockDim.y),
            thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (i64 token = begin; token < end; ++token) {
    for (int column = first + thread; column < last; column += threads)
      store(out + token * stride + column, splat<T, 1>(0.0f));
  }
}

}  // namespace kiln
