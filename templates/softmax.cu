// Softmax of rows with temperature, or its logarithm: y = exp((x - max) / t) / sum.
//
// THREADS threads of each of CLUSTER blocks share a row and hold it packed in registers, so that it is read once: a vocabulary of 128256
// floats is more than one SM holds, and eight blocks of a cluster hold it while their neighbours stream. Each thread reduces its own part to
// (max, sum), and these pairs are merged over threads, then over blocks. A row too long for that, or of run-time length, is read again.
// RING > 0: as many clusters as fit walk over the rows instead, and their next rows are on the way while one is reduced and stored.
#include "kiln/bulk.cuh"
#include "kiln/cluster.cuh"
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "kiln/mbarrier.cuh"
#include "kiln/pdl.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// One row of a cluster (ROWS rows of a block), held in registers or read twice.
template <typename T, int H, bool LOG, typename OUT, int VEC, int THREADS, int ROWS, int CLUSTER>
__device__ __forceinline__ void one_row(OUT* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, f32 temperature, const f32* temperatures,
                                        i32 columns) {
  using Values = Vec<T, VEC>;
  constexpr int TEAM = THREADS * CLUSTER;                          // threads of a row
  constexpr int MINE = static_cast<int>(ceil_div(H / VEC, TEAM));  // chunks of a row per thread
  constexpr bool HELD = H > 0 && MINE * Values::REGISTERS <= 40 && (sizeof(T) == 4 || MINE <= 16 || VEC == 1);  // more than that spills at 64 registers
  constexpr int BATCH = HELD ? MINE : larger(1, smaller(8, 16 / Values::REGISTERS));  // chunks whose loads are in flight together
  __shared__ MaxSum partial[reduce_slots(THREADS)];
  __shared__ MaxSum parts[CLUSTER];
  if constexpr (CLUSTER > 1) cluster_arrive();

  const int chunks = (H > 0 ? H : columns) / VEC;
  const int rank = CLUSTER > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int thread = rank * THREADS + threadIdx.x;
  const i64 own_row = static_cast<i64>(blockIdx.x / CLUSTER) * ROWS + threadIdx.y;
  const i64 row = own_row < rows ? own_row : rows - 1;  // a thread without a row reads the last one and stores nothing
  const T* x_row = x + row * stride_x;
  OUT* out_row = out + row * stride_out;
  const auto has = [&](int i) { return (H > 0 && (i + 1) * TEAM <= H / VEC) || thread + i * TEAM < chunks; };
  const auto at = [&](int i) { return static_cast<i64>(thread + i * TEAM) * VEC; };

  pdl_wait();
  Values piece[BATCH];
  const auto read = [&](int first) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) piece[i] = has(first + i) ? load<VEC>(x_row + at(first + i)) : splat<T, VEC>(-infinity());
  };
  if constexpr (HELD) read(0);
  const f32 t = temperatures ? load_one(temperatures + row) : temperature;
  pdl_launch_dependents();
  const f32 inverse = reciprocal_approx(t);
  const MergeMaxSum merge{LOG2_E * inverse};

  MaxSum total = merge.identity();
  const auto accumulate = [&](bool begun) {
    f32 largest = total.max;
#pragma unroll
    for (int i = 0; i < BATCH; ++i) largest = fmaxf(largest, max_of(piece[i]));
    const f32 shift = finite_shift(largest);
    f32 even = 0.0f, odd = begun ? merge.rescaled(total, largest) : 0.0f;  // two chains of additions
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      f32 v[VEC];
      widen(piece[i], v);
      for (int j = 0; j < VEC; ++j) ((i + j) % 2 ? odd : even) += exp2_approx((v[j] - shift) * merge.scale);
    }
    total = {largest, even + odd};
  };
  if constexpr (HELD) {
    accumulate(false);
  } else {
#pragma unroll 1
    for (int first = 0; first * TEAM < chunks; first += BATCH) {
      read(first);
      accumulate(true);
    }
  }

  total = row_reduce<THREADS>(total, merge, partial, threadIdx.x);
  if constexpr (CLUSTER > 1) {
    cluster_wait();  // every block of the cluster runs: its shared memory may be written
    if (threadIdx.x < CLUSTER) {
      cluster_store(&parts[rank].max, threadIdx.x, total.max);
      cluster_store(&parts[rank].sum, threadIdx.x, total.sum);
    }
    cluster_arrive();
    cluster_wait();
    total = warp_reduce<CLUSTER>(parts[threadIdx.x % CLUSTER], merge);
  }

  const f32 shift = finite_shift(total.max);
  const f32 factor = LOG ? logf(total.sum) : reciprocal_approx(total.sum);
  const auto finish = [&](int first) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (own_row >= rows || !has(first + i)) continue;
      f32 v[VEC];
      keep_packed(piece[i]);
      widen(piece[i], v);
      for (int j = 0; j < VEC; ++j) {
        v[j] -= shift;
        v[j] = LOG ? v[j] * inverse - factor : exp2_approx(v[j] * merge.scale) * factor;
      }
      store(out_row + at(first + i), narrow<OUT>(v));
    }
  };
  if constexpr (HELD) {
    finish(0);
  } else {
#pragma unroll 1
    for (int first = 0; first * TEAM < chunks; first += BATCH) {
      read(first);
      finish(first);
    }
  }
}

// One row after another, with no barrier but those that data completes. A warp owns pieces of PIECE x 32 vectors, the same of each row, and
// keeps RING of them on the way into slots of its own. It takes a row out of its slots, as powers under the maximum of each piece (so an
// element costs one exponential), and sends its (max, sum) to all warps of the cluster; while that travels it takes the next row, and then
// finishes the first. Each element is read and written by one warp, so out may be x.
template <typename T, int H, bool LOG, typename OUT, int VEC, int THREADS, int CLUSTER, int RING, int PIECE>
__device__ __forceinline__ void walk_rows(OUT* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, f32 temperature, const f32* temperatures) {
  static_assert(VEC * sizeof(T) == 16, "bulk copies and shared memory are accessed in 16 bytes");
  constexpr int CHUNKS = H / VEC;
  constexpr int WARPS = THREADS / 32, TEAM = WARPS * CLUSTER;              // warps of a block, of a row
  constexpr int SPAN = PIECE * 32;                                         // chunks of a piece
  constexpr int PIECES = static_cast<int>(ceil_div(CHUNKS, TEAM * SPAN));  // of a warp; the last one may be shorter or empty
  constexpr int SENT = 4;  // who sends for row r has heard from all about r - 2, and they had read r - 4 by then: its place is free
  extern __shared__ __align__(128) u8 slots[];
  __shared__ Barrier landed[WARPS][RING], told[SENT];
  __shared__ __align__(8) MaxSum pairs[SENT][TEAM];

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int member = (CLUSTER > 1 ? static_cast<int>(cluster_rank()) : 0) * WARPS + warp;
  const i64 step = gridDim.x / CLUSTER, first_row = blockIdx.x / CLUSTER;
  T* const ring = reinterpret_cast<T*>(slots) + warp * RING * SPAN * VEC;
  const auto begin = [&](int p) { return (p * TEAM + member) * SPAN; };  // the first chunk of a piece
  const auto length = [&](int p) { return p + 1 < PIECES ? SPAN : larger(0, smaller(SPAN, CHUNKS - begin(p))); };
  const auto at = [&](int p, int i) { return static_cast<i64>(begin(p) + lane + 32 * i) * VEC; };
  const auto has = [&](int p, int i) { return lane + 32 * i < length(p); };
  const auto fetch = [&](i64 row, int p, u32 slot) {
    if (lane != 0 || row >= rows) return;
    bulk_load(ring + slot * SPAN * VEC, x + row * stride_x + static_cast<i64>(begin(p)) * VEC, length(p) * 16, landed[warp][slot]);
  };
  const auto inverse_of = [&](i64 row) {
    return reciprocal_approx(temperatures ? load_one(temperatures + (row < rows ? row : rows - 1)) : temperature);
  };

  if (lane == 0) {
#pragma unroll 1
    for (int i = 0; i < RING; ++i) landed[warp][i].init(1);
#pragma unroll 1
    for (int i = 0; i < SENT && warp == 0; ++i) told[i].init(CLUSTER > 1 ? 1 : WARPS);
    barriers_ready();
  }
  __syncwarp();
  if constexpr (CLUSTER > 1) cluster_arrive_relaxed();
  pdl_wait();
#pragma unroll 1
  for (int i = 0; i < RING; ++i) fetch(first_row + i / PIECES * step, i % PIECES, i);
  f32 next_inverse = inverse_of(first_row), inverse = next_inverse, held_inverse = next_inverse;
  __syncwarp();
  CLUSTER > 1 ? cluster_wait() : __syncthreads();  // the barriers of every block are ready

  RingPosition<RING> taken;
  RingPosition<SENT> sent, heard;
  f32 held[PIECES][PIECE * VEC], held_max[PIECES];  // of the row before: powers (LOG: values), and what they are relative to
#pragma unroll 1
  for (i64 row = first_row; row < rows + step; row += step) {
    f32 fresh[PIECES][PIECE * VEC] = {}, fresh_max[PIECES] = {};
    if (row < rows) {  // take this row
      inverse = next_inverse;
      next_inverse = inverse_of(row + step);
      const MergeMaxSum merge{LOG2_E * inverse};
      if (row + step >= rows) pdl_launch_dependents();
      f32 sums[PIECES], largest = -infinity(), sum = 0.0f;
#pragma unroll
      for (int p = 0; p < PIECES; ++p) {
        Vec<T, VEC> piece[PIECE];
        landed[warp][taken.slot].wait(taken.parity);
        f32 top = -infinity();
#pragma unroll
        for (int i = 0; i < PIECE; ++i) {
          piece[i] = has(p, i) ? load_shared<VEC>(ring + (taken.slot * SPAN + lane + 32 * i) * VEC) : splat<T, VEC>(-infinity());
          top = fmaxf(top, max_of(piece[i]));
        }
        top = warp_reduce<32>(top, Max{});  // each lane has read its part: the slot is free
        fetch(row + (p + RING) / PIECES * step, (p + RING) % PIECES, taken.slot);
        taken.advance();
        const f32 shift = finite_shift(top);
        f32 even = 0.0f, odd = 0.0f;  // two chains of additions
#pragma unroll
        for (int i = 0; i < PIECE; ++i) {
          f32 v[VEC];
          widen(piece[i], v);
          for (int j = 0; j < VEC; ++j) {
            const f32 e = exp2_approx((v[j] - shift) * merge.scale);
            ((i + j) % 2 ? odd : even) += e;
            fresh[p][i * VEC + j] = LOG ? v[j] : e;
          }
        }
        sums[p] = even + odd;
        fresh_max[p] = top;
        largest = fmaxf(largest, top);
      }
#pragma unroll
      for (int p = 0; p < PIECES; ++p) sum += merge.rescaled({fresh_max[p], sums[p]}, largest);
      sum = warp_reduce<32>(sum, Sum{});
      if constexpr (CLUSTER > 1) {
        if (threadIdx.x == 0) told[sent.slot].arrive_expecting(TEAM * sizeof(MaxSum));
        if (lane < CLUSTER) cluster_send(&pairs[sent.slot][member], lane, largest, sum, told[sent.slot]);
      } else if (lane == 0) {
        pairs[sent.slot][member] = {largest, sum};
        told[sent.slot].arrive();
      }
      sent.advance();
    }

    if (row > first_row) {  // finish the one before
      const MergeMaxSum merge{LOG2_E * held_inverse};
      told[heard.slot].wait(heard.parity);
      MaxSum part[ceil_div(TEAM, 32)], total = merge.identity();
#pragma unroll
      for (int i = 0; i < ceil_div(TEAM, 32); ++i) {
        part[i] = lane + 32 * i < TEAM ? pairs[heard.slot][lane + 32 * i] : merge.identity();
        total.max = fmaxf(total.max, part[i].max);
      }
      for (int i = 0; i < ceil_div(TEAM, 32); ++i) total.sum += merge.rescaled(part[i], total.max);
      total = warp_reduce<32>(total, merge);
      heard.advance();

      OUT* out_row = out + (row - step) * stride_out;
      const f32 shift = finite_shift(total.max);
      const f32 factor = LOG ? logf(total.sum) : reciprocal_approx(total.sum);
#pragma unroll
      for (int p = 0; p < PIECES; ++p) {
        const f32 share = merge.rescaled({held_max[p], factor}, total.max);
#pragma unroll
        for (int i = 0; i < PIECE; ++i) {
          if (!has(p, i)) continue;
          f32 v[VEC];
          for (int j = 0; j < VEC; ++j) {
            const f32 h = held[p][i * VEC + j];
            v[j] = LOG ? (h - shift) * held_inverse - factor : h * share;
          }
          store(out_row + at(p, i), narrow<OUT>(v));
        }
      }
    }
    held_inverse = inverse;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      held_max[p] = fresh_max[p];
#pragma unroll
      for (int i = 0; i < PIECE * VEC; ++i) held[p][i] = fresh[p][i];
    }
  }
}

// H = 0: rows have `columns` elements. CLUSTER > 1 needs sm_90, and a launch with that cluster size along x. RING > 0 needs sm_90, shared memory
// for RING * PIECE vectors of each thread, and a grid of any number of clusters: fastest are as many as run at once.
template <typename T, int H, bool LOG, typename OUT, int VEC, int THREADS, int ROWS, int CLUSTER, int RING, int PIECE>
__global__ void __launch_bounds__(THREADS* ROWS, resident_blocks(RING > 0 ? 2 * THREADS : THREADS * ROWS))
    softmax(OUT* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, f32 temperature, const f32* temperatures, i32 columns) {
  if constexpr (RING > 0) {
    walk_rows<T, H, LOG, OUT, VEC, THREADS, CLUSTER, RING, PIECE>(out, x, rows, stride_x, stride_out, temperature, temperatures);
  } else {
    one_row<T, H, LOG, OUT, VEC, THREADS, ROWS, CLUSTER>(out, x, rows, stride_x, stride_out, temperature, temperatures, columns);
  }
}

}  // namespace kiln
