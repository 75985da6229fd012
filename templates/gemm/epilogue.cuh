// The end of a matrix product, between its sums and its results: scales, bias, activation, gate and residual.
#pragma once
#include "kiln/activation.cuh"
#include "kiln/dtype.cuh"

namespace kiln {

// swigluoai is a pair of functions, one of the gate and one of the other half: see moe/experts.cuh.
// log_decay is RWKV7's: -exp(-1/2) sigmoid(x), the logarithm of the decay of its states.
enum class Activation {
  none,
  relu,
  relu_squared,
  silu,
  gelu,
  gelu_tanh,
  swigluoai,
  sigmoid,
  tanh,
  log_decay
};

// Scales of fp8 operands. tensor: one for each operand. row: one for each row of a and of b. block: one for each 128
// elements of a row of a, and for each 128 x 128 elements of b.
enum class Factors { none, tensor, row, block };

template <Activation ACT>
__device__ __forceinline__ f32 activated(f32 x) {
  static_assert(ACT != Activation::swigluoai, "swigluoai changes both halves of a gated product");
  if constexpr (ACT == Activation::none) {
    return x;
  } else if constexpr (ACT == Activation::relu) {
    return x < 0.0f ? 0.0f : x;  // NaN stays NaN
  } else if constexpr (ACT == Activation::relu_squared) {
    return x < 0.0f ? 0.0f : x * x;
  } else if constexpr (ACT == Activation::sigmoid) {
    return sigmoid(x);
  } else if constexpr (ACT == Activation::tanh) {
    return tanhf(x);
  } else if constexpr (ACT == Activation::log_decay) {
    return -0.6065306597126334f * sigmoid(x);
  } else {
    constexpr Act SAME = ACT == Activation::silu   ? Act::silu
                         : ACT == Activation::gelu ? Act::gelu
                                                   : Act::gelu_tanh;
    return activate<SAME>(x, 0.0f, 0.0f);
  }
}

template <int W>
__device__ __forceinline__ void scale(f32 (&x)[W], f32 by) {
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] *= by;
}
// Multiplies each element by `by` and its own factor of `columns`.
template <int W>
__device__ __forceinline__ void scale(f32 (&x)[W], f32 by, const f32* columns) {
  f32 each[W];
  widen(load<W>(columns), each);
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] *= by * each[i];
}
template <int W, typename T>
__device__ __forceinline__ void add(f32 (&x)[W], const T* from) {
  f32 each[W];
  widen(load<W>(from), each);
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] += each[i];
}

// Finishes sums: y = act(x + bias) + residual, or with a gate y = act(gate + bias[n]) * (up + bias[N + n]) + residual.
template <typename OUT, int N, Factors SCALES, bool BIAS, Activation ACT, bool GATED, bool RESIDUAL>
struct Epilogue {
  static constexpr bool gated = GATED;
  static constexpr bool slow_to_compile = ACT == Activation::gelu || ACT == Activation::tanh;
  static constexpr Factors scales = SCALES;
  // The results are the sums, rounded to 16 bits.
  static constexpr bool plain = (SCALES == Factors::none || SCALES == Factors::block) && !BIAS &&
                                ACT == Activation::none && !GATED && !RESIDUAL && sizeof(OUT) == 2;

  const f32 *scale_a, *scale_b;  // as `scales` says
  const OUT* bias;
  const OUT* residual;  // of this batch
  i64 stride_residual;

  // Finishes W neighbouring sums of a row from column n on; `up` has the sums of the other half of b's rows, if there is
  // a gate. REQUIRES: the row and the columns exist; n is a multiple of W.
  template <int W>
  __device__ __forceinline__ void finish(f32 (&x)[W], f32 (&up)[W], i64 row, int n) const {
    if constexpr (SCALES == Factors::tensor) {
      scale(x, load_one(scale_a) * load_one(scale_b));
      if constexpr (GATED) scale(up, load_one(scale_a) * load_one(scale_b));
    } else if constexpr (SCALES == Factors::row) {
      scale(x, load_one(scale_a + row), scale_b + n);
      if constexpr (GATED) scale(up, load_one(scale_a + row), scale_b + N + n);
    }
    if constexpr (BIAS) {
      add(x, bias + n);
      if constexpr (GATED) add(up, bias + N + n);
    }
#pragma unroll
    for (int i = 0; i < W; ++i) x[i] = activated<ACT>(x[i]);
    if constexpr (GATED) {
#pragma unroll
      for (int i = 0; i < W; ++i) x[i] *= up[i];
    }
    if constexpr (RESIDUAL) add(x, residual + row * stride_residual + n);
  }
};

}  // namespace kiln
