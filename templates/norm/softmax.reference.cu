// Naive reference for softmax: a softmax in double.
//
// A block of any size takes one row. Results are not rounded to the output's dtype.
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, int H, bool LOG>
__global__ void softmax(f64* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, f32 temperature,
                        const f32* temperatures, i32 columns) {
  __shared__ f64 partial[1024];
  const i64 row = blockIdx.x;
  if (row >= rows) return;
  const int length = H > 0 ? H : columns;
  const f64 t = temperatures ? temperatures[row] : temperature;
  const auto value = [&](int i) { return to_double(x[row * stride_x + i]) / t; };

  f64 largest = value(0);
  for (int i = threadIdx.x; i < length; i += blockDim.x) largest = fmax(largest, value(i));
  partial[threadIdx.x] = largest;
  __syncthreads();
  for (int i = 0; i < blockDim.x; ++i) largest = fmax(largest, partial[i]);
  __syncthreads();

  f64 sum = 0;
  for (int i = threadIdx.x; i < length; i += blockDim.x) sum += exp(value(i) - largest);
  partial[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < blockDim.x; ++i) sum += partial[i];

  for (int i = threadIdx.x; i < length; i += blockDim.x) {
    const f64 v = value(i) - largest;
    out[row * stride_out + i] = LOG ? v - log(sum) : exp(v) / sum;
  }
}

}  // namespace reference
}  // namespace kiln
