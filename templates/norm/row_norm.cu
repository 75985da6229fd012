// Normalises rows: RMS, layer or L2 normalisation, with an optional weight, bias and gate.
//
// A row is a head of a token. THREADS threads share it, and hold it packed in registers between the passes, so
// that it is read once. A row too long for the registers is read again, from L2 if it is still there. Short rows
// share a warp, and a block has ROWS rows. This is the structure of rms_norm.
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "kiln/pdl.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"
#include "norm/row_norm.cuh"

namespace kiln {

// Blocks of `threads` threads for an SM. A layer norm with a gate holds two sums and two arrays, and gets twice the registers.
template <Norm NORM, NormGate GATE>
constexpr int row_norm_blocks(int threads) {
  const int blocks = resident_blocks(threads);
  return NORM == Norm::layer && GATE != NormGate::none && blocks > 1 ? blocks / 2 : blocks;
}

template <typename T, int H, Norm NORM, NormGate GATE, typename WEIGHT, int VEC, int THREADS, int ROWS>
__global__ void __launch_bounds__(THREADS* ROWS, row_norm_blocks<NORM, GATE>(THREADS* ROWS))
    row_norm(T* out, const T* x, i32 tokens, i32 heads, i64 stride_x, i64 stride_out, f32 eps,
             const WEIGHT* w, const WEIGHT* bias, i64 stride_w, const T* z, i64 stride_z) {
  using Values = Vec<T, VEC>;
  constexpr bool GATED = GATE != NormGate::none;
  struct Piece {
    Values x, z;
  };  // only gates use z
  constexpr int CHUNKS = H / VEC;
  constexpr int MINE = static_cast<int>(ceil_div(CHUNKS, THREADS));  // chunks of a row per thread
  constexpr int PIECE = Values::REGISTERS * (GATED ? 2 : 1);
  constexpr bool HELD = MINE * VEC <= 32 && MINE * PIECE <= 32;  // more than this spills at 1024 threads
  // The loads of BATCH chunks are in flight together.
  constexpr int BATCH = HELD ? MINE : larger(1, smaller(4, 16 / PIECE));
  __shared__ f32 sums[reduce_slots(THREADS)], squares[reduce_slots(THREADS)];

  const int thread = threadIdx.x;
  const i64 rows = static_cast<i64>(tokens) * heads,
            own_row = static_cast<i64>(blockIdx.x) * ROWS + threadIdx.y;
  // A thread without a row reads the last row, and stores nothing.
  const i64 row = own_row < rows ? own_row : rows - 1, token = row / heads, head = row - token * heads;
  const T *x_row = x + token * stride_x + head * H, *z_row = z + token * stride_z + head * H;
  T* out_row = out + token * stride_out + head * H;

  const auto has = [&](int i) { return (i + 1) * THREADS <= CHUNKS || thread + i * THREADS < CHUNKS; };
  const auto at = [&](int i) { return (thread + i * THREADS) * VEC; };
  Piece piece[BATCH];
  const auto read_pieces = [&](int first) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (!has(first + i)) continue;
      piece[i].x = load<VEC>(x_row + at(first + i));
      if constexpr (GATED) piece[i].z = load<VEC>(z_row + at(first + i));
    }
  };
  const auto gate_of = [&](f32 z) { return sigmoid(z) * (GATE == NormGate::sigmoid ? 1.0f : z); };
  // The values that are normalised.
  const auto values = [&](const Piece& p, f32(&v)[VEC]) {
    widen(p.x, v);
    if constexpr (GATE == NormGate::silu_first) {
      f32 z[VEC];
      widen(p.z, z);
      for (int j = 0; j < VEC; ++j) v[j] *= gate_of(z[j]);
    }
  };
  // Calls f(values) for each of this thread's pieces of the row.
  const auto each = [&](auto f) {
#pragma unroll 1
    for (int first = 0; first < MINE; first += BATCH) {
      if constexpr (!HELD) read_pieces(first);
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        f32 v[VEC];
        values(piece[i], v);
        if (first + i < MINE && has(first + i)) f(v);
      }
    }
  };

  pdl_launch_dependents_of_few<16>();
  pdl_wait();
  if constexpr (HELD) read_pieces(0);
  pdl_launch_dependents();
  f32 mean = 0.0f;
  if constexpr (NORM == Norm::layer) {
    f32 sum = 0.0f;
    each([&](const f32(&v)[VEC]) {
      for (int j = 0; j < VEC; ++j) sum += v[j];
    });
    mean = row_reduce<THREADS>(sum, Sum{}, sums, thread) * (1.0f / H);
  }
  f32 even = 0.0f, odd = 0.0f;  // sums of squares; two chains of additions take half the time of one
  each([&](const f32(&v)[VEC]) {
    for (int j = 0; j < VEC; ++j) {
      const f32 centred = NORM == Norm::layer ? v[j] - mean : v[j];
      (j % 2 ? odd : even) = fmaf(centred, centred, j % 2 ? odd : even);
    }
  });
  const f32 total = row_reduce<THREADS>(even + odd, Sum{}, squares, thread);
  const f32 factor = rsqrt_approx(total * (NORM == Norm::l2 ? 1.0f : 1.0f / H) + eps);

  const WEIGHT *w_row = w + head * stride_w, *bias_row = bias + head * stride_w;
#pragma unroll 1
  for (int first = 0; first < MINE; first += BATCH) {
    if constexpr (!HELD) read_pieces(first);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (first + i >= MINE || own_row >= rows || !has(first + i)) continue;
      keep_packed(piece[i].x);
      f32 v[VEC], g[VEC];
      values(piece[i], v);
      for (int j = 0; j < VEC; ++j) v[j] = (v[j] - mean) * factor;
      if (w) {
        widen(load<VEC>(w_row + at(first + i)), g);
        for (int j = 0; j < VEC; ++j) v[j] *= g[j];
      }
      if (bias) {
        widen(load<VEC>(bias_row + at(first + i)), g);
        for (int j = 0; j < VEC; ++j) v[j] += g[j];
      }
      if constexpr (GATE == NormGate::silu || GATE == NormGate::sigmoid) {
        widen(piece[i].z, g);
        for (int j = 0; j < VEC; ++j) v[j] *= gate_of(g[j]);
      }
      store(out_row + at(first + i), narrow<T>(v));
    }
  }
}

}  // namespace kiln
