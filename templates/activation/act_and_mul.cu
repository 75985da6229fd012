// Gated activation of rows: y = act(gate) * up, optionally quantised to fp8.
//
// Gate and up are the halves of a row of x, or its even and odd elements. The vectors of all rows form one
// flat sequence, and each block takes THREADS * UNROLL neighbouring vectors. Every thread therefore has work
// for any D, and has 2 * UNROLL loads in flight.
#include "kiln/activation.cuh"
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"
#include "kiln/quantum.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

template <typename T, int D, Act ACT, typename OUT, bool ROUND_GATE, Order ORDER, int GROUP, int VEC,
          int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS, resident_blocks(THREADS))
    act_and_mul(OUT* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, f32 alpha, f32 limit,
                const f32* scale, f32* out_scale, i64 stride_out_scale) {
  constexpr int CHUNKS = D / VEC;
  const i64 first = static_cast<i64>(blockIdx.x) * (THREADS * UNROLL);
  const i64 first_row = first / CHUNKS;
  // Below 2^31, so that 32 bits suffice in row() and column().
  const u32 offset = static_cast<u32>(first - first_row * CHUNKS) + threadIdx.x;
  const i64 end = static_cast<i64>(rows) * CHUNKS;

  const auto active = [&](int i) { return first + threadIdx.x + i * THREADS < end; };
  const auto row = [&](int i) { return first_row + (offset + i * THREADS) / CHUNKS; };
  const auto column = [&](int i) { return static_cast<int>((offset + i * THREADS) % CHUNKS) * VEC; };

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  Vec<T, VEC> a[UNROLL], b[UNROLL];  // gate and up, or the two halves of 2 * VEC interleaved elements
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (!active(i)) continue;
    const T* p = x + row(i) * stride_x;
    if constexpr (ORDER == Order::interleaved) {
      a[i] = load<VEC>(p + 2 * column(i));  // the two loads share their sectors, which L1 keeps
      b[i] = load<VEC>(p + 2 * column(i) + VEC);
    } else {
      a[i] = load<VEC>(p + column(i) + (ORDER == Order::gate_first ? 0 : D));
      b[i] = load<VEC>(p + column(i) + (ORDER == Order::gate_first ? D : 0));
    }
  }
  f32 quantum = 1.0f;
  if constexpr (is_fp8<OUT> && GROUP == 0) quantum = scale ? reciprocal_approx(load_one(scale)) : 1.0f;
  pdl_launch_dependents();

#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    f32 gate[VEC], up[VEC], y[VEC];
    if constexpr (ORDER == Order::interleaved) {
      deinterleave(a[i], b[i], gate, up);
    } else {
      widen(a[i], gate);
      widen(b[i], up);
    }
    for (int j = 0; j < VEC; ++j) gate[j] = activate<ACT>(gate[j], alpha, limit);
    if constexpr (ROUND_GATE) widen(narrow<T>(gate), gate);
    for (int j = 0; j < VEC; ++j) y[j] = gate[j] * gated<ACT>(up[j], limit);

    if constexpr (GROUP > 0) {  // the GROUP / VEC threads of a group are neighbours in one warp
      f32 largest = 0.0f;
      for (int j = 0; j < VEC; ++j) largest = fmaxf(largest, fabsf(y[j]));
      largest = warp_reduce<GROUP / VEC>(largest, Max{});
      const f32 s = scale_of<OUT, false>(largest, 1e-10f);
      quantum = reciprocal_approx(s);
      if (active(i) && column(i) % GROUP == 0)
        store(out_scale + row(i) * stride_out_scale + column(i) / GROUP, narrow<f32>({s}));
    }
    if constexpr (is_fp8<OUT>) {
      for (int j = 0; j < VEC; ++j) y[j] *= quantum;
    }
    if (active(i)) store(out + row(i) * stride_out + column(i), narrow<OUT>(y));
  }
}

}  // namespace kiln
