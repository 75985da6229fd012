// Copies elements to double: the start values of a buffer that a reference both reads and writes.
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

template <typename T>
__global__ void __launch_bounds__(256) widen_all(f64* out, const T* x, i64 n) {
  pdl_wait();
  const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    out[i] = to_double(x[i]);
}

}  // namespace kiln
