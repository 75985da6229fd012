// The gates and strengths of the delta rule in chunks, as they are in global memory.
#pragma once
#include "recurrent/delta_steps.cuh"
#include "recurrent/sequences.cuh"

namespace kiln {

// Logarithms to base 2 of decays count as at least this. 2^-128 times a state is 0 for all purposes, and a sum of 64 of
// them still has a precision of 2^-11.
inline constexpr f32 LEAST_LOG_DECAY = -128.0f;

// Returns the base-2 logarithm of the decay for g. It takes the arguments of decay_of().
template <GateInput INPUT>
__device__ __forceinline__ f32 log2_decay_of(f32 g, f32 rate, f32 lower_bound) {
  if constexpr (INPUT == GateInput::softplus) g = -rate * (g > 20.0f ? g : log1pf(expf(g)));
  if constexpr (INPUT == GateInput::bounded) g = lower_bound * sigmoid(rate * g);
  return fmaxf(g * LOG2_E, LEAST_LOG_DECAY);
}

// The arrays of gates and strengths in global memory, as in DeltaInputs.
template <typename G, typename B>
struct ChunkGates {
  const B* beta;
  const G* g;
  const f32 *a_log, *dt_bias;
  i32 value_heads;
  f32 lower_bound;
};

}  // namespace kiln
