// Softmax of rows with temperature, or its logarithm: y = exp((x - max) / t) / sum.
//
// THREADS threads of each of CLUSTER blocks share a row, and hold it packed in registers, so that it is read
// once. A vocabulary of 128256 floats is more than one SM holds. The blocks of a cluster hold it together,
// while other blocks on their SMs load rows. A row that is too long for the cluster, or has a run-time
// length, is read again.
//
// Each thread reduces its own part of the row to a pair (max, sum), and the pairs of all threads are merged.
// In a cluster, each warp sends its pair to all blocks.
#include "kiln/cluster.cuh"
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"
#include "kiln/mbarrier.cuh"
#include "kiln/pdl.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// Merges PAIRS pairs of shared memory, and returns the result to each lane. All lanes of a warp call it.
template <int PAIRS>
__device__ __forceinline__ MaxSum merged(const MaxSum* pairs, int lane, MergeMaxSum merge) {
  constexpr int EACH = static_cast<int>(ceil_div(PAIRS, 32));
  constexpr int UNROLL = EACH <= 4 ? EACH : 1;  // more loads at once would take registers from the row
  MaxSum total = merge.identity();
#pragma unroll UNROLL
  for (int i = 0; i < EACH; ++i) {
    if (lane + 32 * i < PAIRS) total.max = fmaxf(total.max, pairs[lane + 32 * i].max);
  }
#pragma unroll UNROLL
  for (int i = 0; i < EACH; ++i) {
    if (lane + 32 * i < PAIRS) total.sum += merge.rescaled(pairs[lane + 32 * i], total.max);
  }
  return warp_reduce<32>(total, merge);
}

// With H = 0, rows have `columns` elements. CLUSTER > 1 needs sm_90, and a launch with clusters of CLUSTER
// blocks along x.
template <typename T, int H, bool LOG, typename OUT, int VEC, int THREADS, int ROWS, int CLUSTER>
__global__ void __launch_bounds__(THREADS* ROWS, resident_blocks(THREADS* ROWS))
    softmax(OUT* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, f32 temperature,
            const f32* temperatures, i32 columns) {
  using Values = Vec<T, VEC>;
  constexpr int TEAM = THREADS * CLUSTER;                          // threads of a row
  constexpr int MINE = static_cast<int>(ceil_div(H / VEC, TEAM));  // chunks of a row per thread
  // A thread that holds more than this spills at 64 registers.
  constexpr bool HELD = H > 0 && MINE * Values::REGISTERS <= (CLUSTER > 1 ? 36 : 40) &&
                        (sizeof(T) == 4 || MINE <= 16 || VEC == 1);
  // The loads of BATCH chunks are in flight together.
  constexpr int BATCH = HELD ? MINE : larger(1, smaller(8, 16 / Values::REGISTERS));
  constexpr int PAIRS = CLUSTER > 1 ? TEAM / 32 : reduce_slots(THREADS);
  __shared__ __align__(8) MaxSum pairs[PAIRS];
  __shared__ Barrier told;  // in a cluster, its first phase ends when all pairs are here
  if constexpr (CLUSTER > 1) {
    if (threadIdx.x == 0) {
      told.init(1);
      barriers_ready();
      told.arrive_expecting(sizeof(pairs));
    }
    __syncwarp();
    cluster_arrive_relaxed();
  }

  const int chunks = (H > 0 ? H : columns) / VEC;
  const int rank = CLUSTER > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int thread = rank * THREADS + threadIdx.x;
  const i64 own_row = static_cast<i64>(blockIdx.x / CLUSTER) * ROWS + threadIdx.y;
  const bool spare = ROWS > 1 && own_row >= rows;
  const i64 row = spare ? rows - 1 : own_row;  // a thread without a row reads the last one and stores nothing
  const T* x_row = x + row * stride_x;
  OUT* out_row = out + row * stride_out;
  const auto has = [&](int i) { return (H > 0 && (i + 1) * TEAM <= H / VEC) || thread + i * TEAM < chunks; };
  const auto at = [&](int i) { return static_cast<i64>(thread + i * TEAM) * VEC; };

  pdl_wait();
  Values piece[BATCH];
  const auto read = [&](int first) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
      piece[i] = has(first + i) ? load<VEC>(x_row + at(first + i)) : splat<T, VEC>(-infinity());
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

  if constexpr (CLUSTER == 1) {
    total = row_reduce<THREADS>(total, merge, pairs, threadIdx.x);
  } else {
    // cluster_send() is used because a barrier of the cluster, with its fence, is slower: 256 rows of 128256
    // floats take 73 instead of 67 us (H200).
    const int lane = threadIdx.x % 32;
    total = warp_reduce<32>(total, merge);
    cluster_wait();  // every block of the cluster is running, and its barrier is ready
    if (lane < CLUSTER) cluster_send(&pairs[thread / 32], lane, total.max, total.sum, told);
    told.wait(0);
    total = merged<PAIRS>(pairs, lane, merge);
  }

  const f32 shift = finite_shift(total.max);
  const f32 factor = LOG ? logf(total.sum) : reciprocal_approx(total.sum);
  const auto finish = [&](int first) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (spare || !has(first + i)) continue;
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

}  // namespace kiln
