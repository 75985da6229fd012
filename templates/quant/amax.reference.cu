// Naive reference for amax: the largest magnitudes, with one block of 256 threads per part.
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, int H>
__global__ void amax(f64* out, const T* x, i32 rows, i64 stride_x, i32 parts) {
  __shared__ f64 partial[256];
  f64 found = 0;
  for (i64 row = blockIdx.x; row < rows; row += parts) {
    for (int i = threadIdx.x; i < H; i += 256) found = fmax(found, fabs(to_double(x[row * stride_x + i])));
  }
  partial[threadIdx.x] = found;
  __syncthreads();
  for (int i = 0; i < 256; ++i) found = fmax(found, partial[i]);
  if (threadIdx.x == 0) out[blockIdx.x] = found;
}

}  // namespace reference
}  // namespace kiln
