// Activations in double precision, for the references of matrix products.
#pragma once
#include "gemm/epilogue.cuh"

namespace kiln {
namespace reference {

// Returns activated<ACT>(x). REQUIRES: ACT is not swigluoai, which belongs to a gate.
template <Activation ACT>
__device__ double activated(double x) {
  static_assert(ACT != Activation::swigluoai, "swigluoai belongs to a gate");
  if constexpr (ACT == Activation::relu || ACT == Activation::relu_squared) {
    return x < 0 ? 0 : ACT == Activation::relu ? x : x * x;
  } else if constexpr (ACT == Activation::silu) {
    return x / (1 + exp(-x));
  } else if constexpr (ACT == Activation::gelu) {
    return x / 2 * (1 + erf(x * 0.70710678118654752440));
  } else if constexpr (ACT == Activation::gelu_tanh) {
    return x / 2 * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  } else if constexpr (ACT == Activation::sigmoid) {
    return 1 / (1 + exp(-x));
  } else if constexpr (ACT == Activation::tanh) {
    return tanh(x);
  } else if constexpr (ACT == Activation::log_decay) {
    return -exp(-0.5) / (1 + exp(-x));
  } else {
    return x;
  }
}

}  // namespace reference
}  // namespace kiln
