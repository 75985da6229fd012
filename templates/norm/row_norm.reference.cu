// Naive reference for row_norm, in double. A block of any size takes one row.
#include "kiln/dtype.cuh"
#include "norm/row_norm.cuh"

namespace kiln {
namespace reference {

template <typename T, int H, Norm NORM, NormGate GATE, typename WEIGHT>
__global__ void row_norm(f64* out, const T* x, i32 tokens, i32 heads, i64 stride_x, i64 stride_out, f32 eps,
                         const WEIGHT* w, const WEIGHT* bias, i64 stride_w, const T* z, i64 stride_z) {
  __shared__ f64 partial[1024];
  const i64 token = blockIdx.x / heads, head = blockIdx.x % heads;
  if (token >= tokens) return;
  const auto gate = [&](int i) {
    const f64 v = to_double(z[token * stride_z + head * H + i]);
    return (GATE == NormGate::sigmoid ? 1.0 : v) / (1.0 + exp(-v));
  };
  const auto value = [&](int i) {
    const f64 v = to_double(x[token * stride_x + head * H + i]);
    return GATE == NormGate::silu_first ? v * gate(i) : v;
  };
  const auto sum_of = [&](auto f) {
    f64 sum = 0;
    for (int i = threadIdx.x; i < H; i += blockDim.x) sum += f(value(i));
    __syncthreads();
    partial[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < blockDim.x; ++i) sum += partial[i];
    return sum;
  };
  const f64 mean = NORM == Norm::layer ? sum_of([](f64 v) { return v; }) / H : 0.0;
  const f64 squares = sum_of([&](f64 v) { return (v - mean) * (v - mean); });
  const f64 factor = 1.0 / sqrt((NORM == Norm::l2 ? squares : squares / H) + static_cast<f64>(eps));
  for (int i = threadIdx.x; i < H; i += blockDim.x) {
    f64 y = (value(i) - mean) * factor;
    if (w) y *= to_double(w[head * stride_w + i]);
    if (bias) y += to_double(bias[head * stride_w + i]);
    if (GATE == NormGate::silu || GATE == NormGate::sigmoid) y *= gate(i);
    out[token * stride_out + head * H + i] = y;
  }
}

}  // namespace reference
}  // namespace kiln
