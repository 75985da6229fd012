// Quantises rows to fp8: y = saturate(x / scale). There is one scale for all rows, one for each row, or one
// for each group of neighbours in a row.
//
// A row is cut into spans. A span is the elements that share a scale. If all elements share one scale, a span
// is a few vectors for each of THREADS threads. THREADS threads share a span, and a block has SPANS spans.
// They hold the span packed in registers until its largest magnitude is known, so that it is read once. A row
// that is too long for the registers is read again, from L2 if it is still there.
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"
#include "kiln/quantum.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

template <typename T, int H, Scaling SCALING, typename OUT, typename SCALE, bool POW2, int SPAN, int VEC,
          int THREADS, int SPANS>
__global__ void __launch_bounds__(THREADS* SPANS, resident_blocks(THREADS* SPANS))
    fp8_quant(OUT* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, const f32* scale,
              SCALE* out_scale, i64 stride_out_scale, i64 stride_out_group, f32 eps, const f32* amax,
              i32 parts) {
  using Values = Vec<T, VEC>;
  // With OF_X, scales are made from the span itself.
  constexpr bool OF_X = SCALING == Scaling::row || SCALING == Scaling::group;
  constexpr int PER_ROW = H / SPAN;
  constexpr int CHUNKS = SPAN / VEC;
  constexpr int MINE = static_cast<int>(ceil_div(CHUNKS, THREADS));  // chunks of a span per thread
  constexpr bool HELD = MINE * Values::REGISTERS <= 32;              // more registers spill at 1024 threads
  // The loads of BATCH chunks are in flight together.
  constexpr int BATCH = HELD ? MINE : larger(1, smaller(8, 16 / Values::REGISTERS));
  constexpr int TEAM = OF_X ? THREADS : THREADS * SPANS;  // threads that find a maximum together
  __shared__ f32 partial[reduce_slots(TEAM)];

  const int thread = threadIdx.x, member = OF_X ? thread : threadIdx.y * THREADS + thread;
  // The kernel that found the maxima of all x has left the end of x in L2, so this kernel begins there.
  const i64 first =
      static_cast<i64>(SCALING == Scaling::tensor ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * SPANS;
  const i64 first_row = first / PER_ROW;
  // `span` counts from the first span of first_row.
  const u32 span = static_cast<u32>(first - first_row * PER_ROW) + threadIdx.y;
  const i64 own_row = first_row + span / PER_ROW;
  // A thread without a span reads a span of the last row, and stores nothing.
  const i64 row = own_row < rows ? own_row : rows - 1;
  const int column = static_cast<int>(span % PER_ROW) * SPAN;
  const T* x_span = x + row * stride_x + column;
  OUT* out_span = out + row * stride_out + column;

  const auto has = [&](int i) { return (i + 1) * THREADS <= CHUNKS || thread + i * THREADS < CHUNKS; };
  const auto at = [&](int i) { return (thread + i * THREADS) * VEC; };
  Values piece[BATCH];
  const auto read = [&](int batch) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (has(batch + i)) piece[i] = load<VEC>(x_span + at(batch + i));
    }
  };

  pdl_launch_dependents_of_few<SCALING == Scaling::row ? 1 : 24>();
  pdl_wait();
  if constexpr (HELD) read(0);
  f32 divisor = 1.0f, found = 0.0f;
  if constexpr (SCALING == Scaling::fixed) divisor = scale ? load_one(scale) : 1.0f;
  if constexpr (SCALING == Scaling::tensor) {
    for (int i = member; i < parts; i += TEAM) found = fmaxf(found, load_one(amax + i));
  }
  pdl_launch_dependents();

  if constexpr (OF_X) {
#pragma unroll 1
    for (int batch = 0; batch < MINE; batch += BATCH) {
      if constexpr (!HELD) read(batch);
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        if (has(batch + i)) found = fmaxf(found, amax_of(piece[i]));
        keep_packed(piece[i]);
      }
    }
  }
  bool finite = false;  // no x is infinite, and so no quotient is infinite
  if constexpr (SCALING != Scaling::fixed) {
    found = row_amax<TEAM>(found, partial, member);
    finite = OF_X && found < infinity();
    divisor = scale_of<OUT, POW2>(found, eps);
    const ScaleArray<SCALE> scales{out_scale, stride_out_scale, stride_out_group};
    if (member == 0 && (OF_X ? own_row < rows : first == 0))
      scales.template store<PER_ROW>(own_row, column / SPAN, divisor);
  }

  const f32 reciprocal = __frcp_rn(divisor);
#pragma unroll 1
  for (int batch = 0; batch < MINE; batch += BATCH) {
    if constexpr (!HELD) read(batch);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (own_row >= rows || !has(batch + i)) continue;
      f32 v[VEC];
      widen(piece[i], v);
      if constexpr (POW2) {
        for (int j = 0; j < VEC; ++j) v[j] *= reciprocal;
      } else if (finite) {
        for (int j = 0; j < VEC; ++j) v[j] = divide(v[j], divisor, reciprocal);
      } else {
        for (int j = 0; j < VEC; ++j) v[j] = divide_any(v[j], divisor, reciprocal);
      }
      store(out_span + at(batch + i), narrow<OUT>(v));
    }
  }
}

}  // namespace kiln
