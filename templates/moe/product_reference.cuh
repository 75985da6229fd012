// The references of moe_gemm and moe_gemm_w4a16: what follows the products of a row with its expert's weight.
#pragma once
#include "gemm/reference.cuh"
#include "moe/experts.cuh"

namespace kiln {
namespace reference {

// Returns element n of a row of d. `sum(i)` is the row's product with row i of the weight, with bias; `weight` is the routing
// weight of the row.
template <int N, bool GATED, Order ORDER, Activation ACT, Weight WEIGHT, typename Sum>
__device__ f64 finished(const Sum& sum, i64 n, f64 weight, f32 alpha, f32 limit) {
  f64 y = 0;
  if constexpr (GATED) {
    const f64 gate = sum(ORDER == Order::gate_first ? n : N + n);
    const f64 up = sum(ORDER == Order::gate_first ? N + n : n);
    if constexpr (ACT == Activation::swigluoai) {
      const f64 most = limit, g = gate > most ? most : gate, u = up > most ? most : up < -most ? -most : up;
      y = g / (1 + exp(-static_cast<f64>(alpha) * g)) * (u + 1);
    } else {
      y = activated<ACT>(gate) * up;
    }
  } else {
    y = activated<ACT>(sum(n));
  }
  return WEIGHT == Weight::result ? y * weight : y;
}

}  // namespace reference
}  // namespace kiln
