// Rows of tokens in e4m3, with a scale for each 128 elements: what fp8_quant makes with GROUP = 128, bit for bit.
#pragma once
#include "kiln/quantum.cuh"

namespace kiln {

// The threads that share a scale.
inline constexpr int QUANTISE_TEAM = 8;

// Quantises the groups of 128 elements that block number `block` has. Groups count along the rows, and a block of THREADS
// threads has one for each team. H is the number of elements of a row.
template <int H, int THREADS, typename X>
__device__ __forceinline__ void quantise_rows(e4m3* codes, f32* scales, const X* x, i32 rows, i64 stride_x,
                                              i32 block) {
  constexpr int GROUP = 128, OF_ROW = H / GROUP, VEC = 16 / sizeof(X);
  constexpr int CHUNKS = GROUP / (QUANTISE_TEAM * VEC);  // of a thread
  const int member = threadIdx.x % QUANTISE_TEAM;
  const i32 group = block * (THREADS / QUANTISE_TEAM) + threadIdx.x / QUANTISE_TEAM;
  // A team without a group reads the last one, and stores nothing.
  const i32 read = smaller(group, rows * OF_ROW - 1), row = read / OF_ROW, first = read % OF_ROW * GROUP;
  const auto at = [&](int i) { return (member + i * QUANTISE_TEAM) * VEC; };

  Vec<X, VEC> piece[CHUNKS];
  f32 amax = 0.0f;
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) piece[i] = load<VEC>(x + row * stride_x + first + at(i));
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) amax = fmaxf(amax, amax_of(piece[i]));
  const f32 scale = scale_of<e4m3, false>(row_amax<QUANTISE_TEAM>(amax, nullptr, member), 1e-10f);
  if (group != read) return;
  if (member == 0) scales[group] = scale;
  const f32 reciprocal = __frcp_rn(scale);
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    f32 v[VEC];
    widen(piece[i], v);
#pragma unroll
    for (int j = 0; j < VEC; ++j) v[j] = divide_any(v[j], scale, reciprocal);
    store(codes + static_cast<i64>(row) * H + first + at(i), narrow<e4m3>(v));
  }
}

}  // namespace kiln
