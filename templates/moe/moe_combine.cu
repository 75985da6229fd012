// Sums the rows that the experts of a token made: the end of a mixture of experts.
//
// The vectors of all rows of out form one flat sequence, and each thread takes one of them. It loads the
// vectors of SLOTS slots together, then adds them in the order of the slots. The order of a sum therefore
// depends on nothing but k. The launch makes small blocks for few tokens, so that even one row is spread
// over several SMs.
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "kiln/pdl.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// The launch bounds leave a thread 80 registers, because the vectors of 8 slots do not fit 64 on every arch. An SM
// then holds 768 threads, which have 96 KB of loads in flight.
// REQUIRES: blockDim.x is at most THREADS; the grid has a thread for each vector of out.
template <typename T, int H, typename OUT, bool WEIGHTS, bool INVERSE, bool SHARED, bool SHARED_GATE,
          bool RESIDUAL, int VEC, int THREADS, int SLOTS>
__global__ void __launch_bounds__(THREADS, resident_blocks(THREADS * 4 / 3))
    moe_combine(OUT* out, const T* y, i32 tokens, i32 k, i64 stride_out, i64 stride_y, const f32* weights,
                const i32* inverse, const T* shared, i64 stride_shared, const T* shared_gate,
                i64 stride_shared_gate, const OUT* residual, i64 stride_residual) {
  constexpr int CHUNKS = H / VEC;
  const i64 first = static_cast<i64>(blockIdx.x) * blockDim.x;
  const i64 first_row = first / CHUNKS;
  const u32 offset = static_cast<u32>(first - first_row * CHUNKS) + threadIdx.x;
  const i64 token = first_row + offset / CHUNKS;
  const int column = static_cast<int>(offset % CHUNKS) * VEC;

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  if (token >= tokens) return;
  Vec<T, VEC> beside;
  Vec<OUT, VEC> before;
  Vec<T, 1> logit;
  if constexpr (SHARED) beside = load<VEC>(shared + token * stride_shared + column);
  if constexpr (SHARED_GATE) logit = load<1>(shared_gate + token * stride_shared_gate);
  if constexpr (RESIDUAL) before = load<VEC>(residual + token * stride_residual + column);

  const i64 pair = token * k;
  const T* from = y + pair * stride_y + column;
  f32 sum[VEC] = {};
#pragma unroll 1
  for (int slot = 0; slot < k; slot += SLOTS, from += SLOTS * stride_y) {
    // Slots after the last one read the last one's numbers, so that no load waits for a condition.
    i32 place[SLOTS] = {};
    f32 weight[SLOTS];
#pragma unroll
    for (int j = 0; j < SLOTS; ++j) {
      const i64 at = pair + smaller(slot + j, k - 1);
      if constexpr (INVERSE) place[j] = static_cast<i32>(load<1>(inverse + at).word[0]);
      if constexpr (WEIGHTS) weight[j] = load_one(weights + at);
    }
    // A slot that is left out counts as zeros, which change no sum: a sum begins as +0 and is never -0.
    Vec<T, VEC> part[SLOTS];
#pragma unroll
    for (int j = 0; j < SLOTS; ++j) {
      if (slot + j < k && place[j] >= 0) part[j] = load<VEC>(from + j * stride_y);
      if (WEIGHTS && place[j] < 0) weight[j] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < SLOTS; ++j) {
      if (slot + j >= k) break;
      f32 value[VEC];
      widen(part[j], value);
#pragma unroll
      for (int i = 0; i < VEC; ++i) sum[i] = WEIGHTS ? fmaf(weight[j], value[i], sum[i]) : sum[i] + value[i];
    }
  }
  pdl_launch_dependents();

  if constexpr (SHARED) {
    f32 value[VEC], gate[1] = {1.0f};
    widen(beside, value);
    if constexpr (SHARED_GATE) {
      widen(logit, gate);
      gate[0] = sigmoid(gate[0]);
    }
#pragma unroll
    for (int i = 0; i < VEC; ++i) sum[i] = fmaf(gate[0], value[i], sum[i]);
  }
  if constexpr (RESIDUAL) {
    f32 value[VEC];
    widen(before, value);
#pragma unroll
    for (int i = 0; i < VEC; ++i) sum[i] += value[i];
  }
  store(out + token * stride_out + column, narrow<OUT>(sum));
}

}  // namespace kiln
