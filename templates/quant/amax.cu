// Finds the largest magnitude of each of `parts` parts of a matrix. Part p has the rows p, p + parts, p + 2
// parts and so on.
//
// One block finds the maximum of one part. No output has to be zeroed first, and the order of the blocks has
// no effect. A kernel that needs the maximum of the whole matrix reads the maxima of all parts.
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"
#include "kiln/quantum.cuh"
#include "kiln/reduce.cuh"
#include "kiln/vector.cuh"

namespace kiln {

template <typename T, int H, int VEC, int THREADS>
__global__ void __launch_bounds__(THREADS, resident_blocks(THREADS))
    amax(f32* out, const T* x, i32 rows, i64 stride_x, i32 parts) {
  constexpr int CHUNKS = H / VEC;
  constexpr int BATCH = larger(1, 16 / Vec<T, VEC>::REGISTERS);  // chunks whose loads are in flight together
  __shared__ f32 partial[reduce_slots(THREADS)];

  const i32 part = blockIdx.x;
  // The number of chunks of this part, counted one row after the other.
  const i64 end = part < rows ? ceil_div(rows - part, parts) * CHUNKS : 0;
  f32 found = 0.0f;
  pdl_wait();
#pragma unroll 1
  for (i64 first = 0; first < end; first += THREADS * BATCH) {
    const i64 row = first / CHUNKS;
    const u32 offset = static_cast<u32>(first - row * CHUNKS) + threadIdx.x;
    Vec<T, VEC> piece[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const u32 chunk = offset + i * THREADS;
      if (first + threadIdx.x + i * THREADS < end)
        piece[i] = load<VEC>(x + (part + (row + chunk / CHUNKS) * parts) * stride_x + chunk % CHUNKS * VEC);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) found = fmaxf(found, amax_of(piece[i]));  // zeros if there is no chunk
  }
  pdl_launch_dependents();
  found = row_amax<THREADS>(found, partial, threadIdx.x);
  if (threadIdx.x == 0) out[part] = found;
}

}  // namespace kiln
