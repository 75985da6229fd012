// RMS normalisation of rows: y = x * rsqrt(mean(x^2) + eps) * w.
//
// Options replace x by x + residual, and quantise the result to fp8. THREADS threads share a row. They hold
// the row packed in registers between the two passes, so that it is read once. A row too long for the
// registers is read again, from L2 if it is still there. Short rows share a warp, and a block has ROWS rows.
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "kiln/pdl.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

template <typename T, int H, bool FUSED_ADD, bool GEMMA, typename OUT, int VEC, int THREADS, int ROWS>
__global__ void __launch_bounds__(THREADS* ROWS, resident_blocks(THREADS* ROWS))
    rms_norm(OUT* out, const T* x, const T* w, i32 rows, i64 stride_x, i64 stride_out, f32 eps, T* residual,
             i64 stride_residual, const f32* scale) {
  using Values = Vec<T, VEC>;
  struct Piece {
    Values x, residual;
  };  // only FUSED_ADD uses residual
  constexpr int CHUNKS = H / VEC;
  constexpr int MINE = static_cast<int>(ceil_div(CHUNKS, THREADS));  // chunks of a row per thread
  constexpr int PIECE = Values::REGISTERS * (FUSED_ADD ? 2 : 1);
  constexpr bool HELD = MINE * VEC <= 32 && MINE * PIECE <= 32;  // more than this spills at 1024 threads
  // The loads of BATCH chunks are in flight together.
  constexpr int BATCH = HELD ? MINE : larger(1, smaller(8, 16 / PIECE));
  constexpr int W_BATCH = smaller(BATCH, larger(1, (40 - BATCH * PIECE) / Values::REGISTERS));
  __shared__ f32 partial[reduce_slots(THREADS)];

  const int thread = threadIdx.x;
  const i64 own_row = static_cast<i64>(blockIdx.x) * ROWS + threadIdx.y;
  // A thread without a row reads the last row, and stores nothing.
  const i64 row = own_row < rows ? own_row : rows - 1;
  const T* x_row = x + row * stride_x;
  T* residual_row = residual + row * stride_residual;
  OUT* out_row = out + row * stride_out;

  const auto has = [&](int i) { return (i + 1) * THREADS <= CHUNKS || thread + i * THREADS < CHUNKS; };
  const auto at = [&](int i) { return (thread + i * THREADS) * VEC; };
  const auto read = [&](int i) {
    Piece p;
    if (has(i)) {
      p.x = load<VEC>(x_row + at(i));
      if constexpr (FUSED_ADD) p.residual = load<VEC>(residual_row + at(i));
    }
    return p;
  };
  const auto values = [&](const Piece& p, f32(&v)[VEC]) {
    widen(p.x, v);
    if constexpr (FUSED_ADD) {
      f32 r[VEC];
      widen(p.residual, r);
      for (int j = 0; j < VEC; ++j) v[j] += r[j];
    }
  };
  f32 even = 0.0f, odd = 0.0f;  // sums of squares; two chains of additions take half the time of one
  const auto accumulate = [&](const Piece& p) {
    f32 v[VEC];
    values(p, v);
    for (int j = 0; j < VEC; ++j) (j % 2 ? odd : even) = fmaf(v[j], v[j], j % 2 ? odd : even);
  };
  f32 factor = 0.0f, quantum = 1.0f;
  const auto finish = [&](int i, const Piece& p, const Values& weight) {
    if (own_row >= rows || !has(i)) return;
    f32 v[VEC], g[VEC];
    values(p, v);
    if constexpr (FUSED_ADD) store(residual_row + at(i), narrow<T>(v));
    widen(weight, g);
    for (int j = 0; j < VEC; ++j) v[j] = v[j] * factor * (GEMMA ? 1.0f + g[j] : g[j]) * quantum;
    store(out_row + at(i), narrow<OUT>(v));
  };

  pdl_launch_dependents_of_few<16>();
  pdl_wait();
  Piece piece[BATCH];
  Values weight[W_BATCH];
  const auto read_pieces = [&](int first) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) piece[i] = read(first + i);
  };
  const auto read_weights = [&](int first) {
#pragma unroll
    for (int i = 0; i < W_BATCH; ++i) {
      if (has(first + i)) weight[i] = load<VEC>(w + at(first + i));
    }
  };

  if constexpr (HELD) read_pieces(0);
  if constexpr (HELD) read_weights(0);
  if constexpr (is_fp8<OUT>) quantum = scale ? load_one(scale) : 1.0f;
  // Here the call is also a fence for the loads above. Without it, ptxas moves the loads of the weights to
  // after the reduction.
  pdl_launch_dependents();
#pragma unroll 1
  for (int first = 0; first < MINE; first += BATCH) {
    if constexpr (!HELD) read_pieces(first);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) accumulate(piece[i]);
  }
  factor = rsqrt_approx(row_reduce<THREADS>(even + odd, Sum{}, partial, thread) * (1.0f / H) + eps);
  if constexpr (is_fp8<OUT>) quantum = reciprocal_approx(quantum);

#pragma unroll 1
  for (int first = 0; first < MINE; first += BATCH) {
    if constexpr (!HELD) read_pieces(first);
#pragma unroll
    for (int part = 0; part < BATCH; part += W_BATCH) {
      if (!HELD || part > 0) read_weights(first + part);
#pragma unroll
      for (int i = 0; i < W_BATCH && part + i < BATCH; ++i) {
        // Otherwise all pieces are finished before a store (1 x 16384: 2.16 instead of 2.06 us).
        keep_packed(piece[part + i].x);
        finish(first + part + i, piece[part + i], weight[i]);
      }
    }
  }
}

}  // namespace kiln
