// Activations of gated feed-forward layers, and the de-interleaving of their inputs.
//
// The relative error against a computation in double is about 2^-20 for |x| < 8. It grows with |x| where a
// result is close to 0; the absolute error there is below 2^-24. There are two reasons:
// - The argument of 2^x is rounded. The error of silu is 2^-18 at -87; below -87.3 the result is 0.
// - 1 + erf cancels, for gelu below -3.
#pragma once
#include "kiln/math.cuh"
#include "kiln/vector.cuh"

namespace kiln {

enum class Act {
  silu,       // x * sigmoid(x)
  gelu,       // x / 2 * (1 + erf(x / sqrt(2)))
  gelu_tanh,  // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  swigluoai,  // gpt-oss: g = min(x, limit); g * sigmoid(alpha * g), times clamp(up, -limit, limit) + 1
};

// The order of gate and up in a row of 2 * D elements. Interleaved rows have the gate in the even elements.
enum class Order { gate_first, up_first, interleaved };

// Returns the factor of the result that depends on the gate x. NaN stays NaN.
// Only swigluoai uses alpha and limit.
template <Act ACT>
__device__ __forceinline__ float activate(float x, float alpha, float limit) {
  if constexpr (ACT == Act::silu) {
    return x * sigmoid(x);
  } else if constexpr (ACT == Act::gelu) {
    return 0.5f * x * (1.0f + erff(x * SQRT_HALF));
  } else if constexpr (ACT == Act::gelu_tanh) {
    // (1 + tanh(u)) / 2 = sigmoid(2u)
    return x * sigmoid(1.5957691216057308f * fmaf(0.044715f * x * x, x, x));
  } else {
    const float g = x > limit ? limit : x;
    return g * sigmoid(alpha * g);
  }
}

// Returns the factor of the result that depends on `up`. Only swigluoai uses limit.
template <Act ACT>
__device__ __forceinline__ float gated(float up, float limit) {
  if constexpr (ACT == Act::swigluoai) {
    return (up > limit ? limit : up < -limit ? -limit : up) + 1.0f;
  } else {
    return up;
  }
}

// Separates 2N neighbouring elements into the even ones and the odd ones. The first N are in `low`, the
// others in `high`.
template <typename T, int N>
__device__ __forceinline__ void deinterleave(const Vec<T, N>& low, const Vec<T, N>& high, float (&even)[N],
                                             float (&odd)[N]) {
  float l[N], h[N];
  widen(low, l);
  widen(high, h);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    even[i] = 2 * i < N ? l[(2 * i) % N] : h[(2 * i) % N];
    odd[i] = 2 * i + 1 < N ? l[(2 * i + 1) % N] : h[(2 * i + 1) % N];
  }
}

}  // namespace kiln
