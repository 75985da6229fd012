// Compares elements with a reference in double, and adds the differences to six counters.
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

// The caller zeroes the six counters of `result`; launches accumulate.
// - [0] sum of squared errors, [1] sum of squared references, [2] largest absolute error
// - [3] non-finite mismatches, [4] elements, [5] elements that are not equal
// A pair of two NaNs, or of the same infinity, matches and adds to [4] only.
// Any other pair with a NaN or an infinity adds to [3], [4] and [5].
// Sums of squares are added in no fixed order.
template <typename T>
__global__ void __launch_bounds__(256) compare(f64* result, const T* x, const f64* reference, i64 n) {
  __shared__ f64 partial[8][6];
  pdl_wait();
  f64 found[6] = {0, 0, 0, 0, 0, 0};
  const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const f64 got = to_double(x[i]), want = reference[i], error = got - want;
    // If the error is finite, so are both values: a NaN or an infinity in either makes the error non-finite.
    const bool finite = (error - error) == 0.0;
    const bool equal = got == want || (got != got && want != want);
    if (finite) {
      found[0] += error * error;
      found[1] += want * want;
      found[2] = fmax(found[2], fabs(error));
    } else if (!equal) {
      found[3] += 1;
    }
    found[4] += 1;
    found[5] += equal ? 0 : 1;
  }
  const auto merge = [](int k, f64 a, f64 b) { return k == 2 ? fmax(a, b) : a + b; };
#pragma unroll
  for (int k = 0; k < 6; ++k) {
    for (int lanes = 16; lanes > 0; lanes /= 2)
      found[k] = merge(k, found[k], __shfl_xor_sync(0xffffffffu, found[k], lanes));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32][k] = found[k];
  }
  __syncthreads();
  const int k = threadIdx.x;
  if (k >= 6) return;
  f64 total = 0;
  for (int warp = 0; warp < 8; ++warp) total = merge(k, total, partial[warp][k]);
  if (k == 2) {
    // Doubles that are not negative have the order of their bit patterns.
    atomicMax(reinterpret_cast<u64*>(result + k), static_cast<u64>(__double_as_longlong(total)));
  } else {
    atomicAdd(result + k, total);
  }
}

}  // namespace kiln
