// Activations of gated feed-forward layers, and the de-interleaving of their inputs. Error relative to double: about 2^-20 for |x| < 8, growing with |x|
// where a result is close to 0: the argument of 2^x rounds (silu at -87: 2^-18; below -87.3 it is 0), and 1 + erf cancels (gelu below -3). The absolute
// error is below 2^-24 there.
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

// Where gate and up lie in a row of 2 * D elements.
enum class Order { gate_first, up_first, interleaved };

// The factor made of the gate. alpha and limit: swigluoai only. NaN stays NaN.
template <Act ACT>
__device__ __forceinline__ float activate(float x, float alpha, float limit) {
  if constexpr (ACT == Act::silu) {
    return x * sigmoid(x);
  } else if constexpr (ACT == Act::gelu) {
    return 0.5f * x * (1.0f + erff(x * SQRT_HALF));
  } else if constexpr (ACT == Act::gelu_tanh) {
    return x *
           sigmoid(1.5957691216057308f * fmaf(0.044715f * x * x, x, x));  // (1 + tanh(u)) / 2 = sigmoid(2u)
  } else {
    const float g = x > limit ? limit : x;
    return g * sigmoid(alpha * g);
  }
}

// The factor made of up.
template <Act ACT>
__device__ __forceinline__ float gated(float up, float limit) {
  if constexpr (ACT == Act::swigluoai) {
    return (up > limit ? limit : up < -limit ? -limit : up) + 1.0f;
  } else {
    return up;
  }
}

// low and high hold 2N neighbours: the even ones and the odd ones of them.
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
