// Copies the row of each token to the places of its pairs, as moe_align sorted them: the a of a moe_gemm with PLACED_A.
//
// Some threads read a span of a row once, and write it to each place. A span is a vector, or with OUT = e4m3 the 128 elements
// that share a scale, in the codes that fp8_quant makes of them. Places without a pair are left as they are.
#include "kiln/pdl.cuh"
#include "kiln/quantum.cuh"

namespace kiln {

template <typename T, typename OUT, int H, int THREADS>
__global__ void __launch_bounds__(THREADS)
    moe_place(OUT* out, const T* x, const i32* inverse, i32 /*places*/, i32 tokens, i32 k, i64 stride_x,
              i64 stride_out, f32* out_scale, i64 stride_out_group) {
  constexpr bool QUANTISED = is_fp8<OUT>;
  constexpr int VEC = 16 / sizeof(T), TEAM = QUANTISED ? 8 : 1, EACH = QUANTISED ? 16 : VEC;
  constexpr int SPAN = TEAM * EACH, OF_ROW = H / SPAN, LOADS = EACH / VEC;
  pdl_wait();
  const i64 span = static_cast<i64>(blockIdx.x) * (THREADS / TEAM) + threadIdx.x / TEAM;
  // A team without a span reads the last one, and stores nothing.
  const i64 read = smaller(span, static_cast<i64>(tokens) * OF_ROW - 1), token = read / OF_ROW;
  const int group = static_cast<int>(read - token * OF_ROW), member = threadIdx.x % TEAM;
  const int column = group * SPAN + member * EACH;
  Vec<T, VEC> piece[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i) piece[i] = load<VEC>(x + token * stride_x + column + i * VEC);
  pdl_launch_dependents();

  f32 scale = 1.0f;
  Vec<OUT, EACH> codes;
  if constexpr (QUANTISED) {
    f32 amax = 0.0f, v[EACH];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) amax = fmaxf(amax, amax_of(piece[i]));
    scale = scale_of<OUT, false>(row_amax<TEAM>(amax, nullptr, member), 1e-10f);
    const f32 reciprocal = __frcp_rn(scale);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) widen(piece[i], reinterpret_cast<f32(&)[VEC]>(v[i * VEC]));
#pragma unroll
    for (int i = 0; i < EACH; ++i) v[i] = divide_any(v[i], scale, reciprocal);
    codes = narrow<OUT>(v);
  } else {
    codes = piece[0];
  }
  if (span != read) return;
  constexpr int SLOTS = 4;  // whose places are loaded together
#pragma unroll 1
  for (int slot = 0; slot < k; slot += SLOTS) {
    i64 place[SLOTS];
#pragma unroll
    for (int j = 0; j < SLOTS; ++j) place[j] = slot + j < k ? inverse[token * k + slot + j] : -1;
#pragma unroll
    for (int j = 0; j < SLOTS; ++j) {
      if (place[j] < 0) continue;
      store(out + place[j] * stride_out + column, codes);
      if (QUANTISED && member == 0) out_scale[place[j] + group * stride_out_group] = scale;
    }
  }
}

}  // namespace kiln
