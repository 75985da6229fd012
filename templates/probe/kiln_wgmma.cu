// Multiplies on all tensor cores for as long as it is told, and does nothing else. Its rate is the peak against which a
// compute-bound kernel is measured.
#include "kiln/dtype.cuh"
#include "kiln/hopper/tma.cuh"
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/hopper/wgmma.cuh"
#include "probe/random.cuh"

namespace kiln {

// Each of two warpgroups of a block makes `steps` products of 64 x 256 x (128 bytes of T). The operands are random
// numbers, because zeros cost less power and so give a higher clock.
template <typename T>
__global__ void __launch_bounds__(256, 1) tensor_peak(f32* out, i32 steps) {
  constexpr int K = 128 / sizeof(T), STEP = 32 / sizeof(T);
  __shared__ __align__(1024) T a[2][64 * K];
  __shared__ __align__(1024) T b[256 * K];
  T* const all[] = {a[0], b};
  const int counts[] = {2 * 64 * K, 256 * K};
  for (int part = 0; part < 2; ++part)
    for (int i = threadIdx.x; i < counts[part]; i += blockDim.x)
      all[part][i] = from_float<T>(standard_normal(random_bits(blockIdx.x * 2 + part, i)));
  fence_async_shared();
  __syncthreads();

  const u64 first = wgmma_operand<128>(a[warpgroup()]), second = wgmma_operand<128>(b);
  f32 sums[128];
  for (int step = 0; step < steps; ++step) {
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < K; k += STEP)
      wgmma<T, 256>(sums, first + wgmma_along(k * sizeof(T)), second + wgmma_along(k * sizeof(T)),
                    step > 0 || k > 0);
    wgmma_commit();
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  wgmma_results(sums);
  f32 sum = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum += sums[i];
  if (sum == 1.2345e30f) out[0] = sum;  // random data do not meet this, but the compiler keeps the products
}

}  // namespace kiln
