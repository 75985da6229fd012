// Naive reference for act_and_mul: a gated activation in double.
//
// A block takes one row. A thread takes an element, or a group if scales are made. Results are not rounded to
// the output's dtype; the rounding of ROUND_GATE and fp8 saturation are kept.
#include "kiln/activation.cuh"
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <Act ACT>
__device__ f64 activate(f64 x, f64 alpha, f64 limit) {
  if (ACT == Act::silu) return x / (1.0 + exp(-x));
  if (ACT == Act::gelu) return 0.5 * x * (1.0 + erf(x * sqrt(0.5)));
  if (ACT == Act::gelu_tanh)
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
  const f64 g = x > limit ? limit : x;
  return g / (1.0 + exp(-alpha * g));
}

template <typename T, int D, Act ACT, typename OUT, bool ROUND_GATE, Order ORDER, int GROUP>
__global__ void act_and_mul(f64* out, const T* x, i32 rows, i64 stride_x, i64 stride_out, f32 alpha,
                            f32 limit, const f32* scale, f64* out_scale, i64 stride_out_scale) {
  const i64 row = blockIdx.x;
  if (row >= rows) return;
  const T* p = x + row * stride_x;
  const auto value = [&](int i) {
    const T gate = p[ORDER == Order::interleaved ? 2 * i : ORDER == Order::gate_first ? i : D + i];
    const T up = p[ORDER == Order::interleaved ? 2 * i + 1 : ORDER == Order::gate_first ? D + i : i];
    f64 g = activate<ACT>(to_double(gate), alpha, limit), u = to_double(up);
    if (ROUND_GATE) g = to_double(from_float<T>(static_cast<float>(g)));
    if (ACT == Act::swigluoai)
      u = (u > limit ? static_cast<f64>(limit) : u < -limit ? static_cast<f64>(-limit) : u) + 1.0;
    return g * u;
  };
  const auto saturate = [](f64 y) { return !is_fp8<OUT> ? y : y > 448.0 ? 448.0 : y < -448.0 ? -448.0 : y; };

  constexpr int SPAN = GROUP > 0 ? GROUP : 1;
  for (int first = threadIdx.x * SPAN; first < D; first += blockDim.x * SPAN) {
    f64 quantum = is_fp8<OUT> && GROUP == 0 && scale ? static_cast<f64>(*scale) : 1.0;
    if (GROUP > 0) {
      f64 largest = 1e-10;
      for (int i = first; i < first + SPAN; ++i) largest = fmax(largest, fabs(value(i)));
      quantum = largest / 448.0;
      out_scale[row * stride_out_scale + first / SPAN] = quantum;
    }
    for (int i = first; i < first + SPAN; ++i) out[row * stride_out + i] = saturate(value(i) / quantum);
  }
}

}  // namespace reference
}  // namespace kiln
