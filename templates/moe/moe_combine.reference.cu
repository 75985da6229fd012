// Naive reference for moe_combine: the sum in double, by one block for each token.
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, int H, typename OUT, bool WEIGHTS, bool INVERSE, bool SHARED, bool SHARED_GATE,
          bool RESIDUAL>
__global__ void moe_combine(f64* out, const T* y, i32 tokens, i32 k, i64 stride_out, i64 stride_y,
                            const f32* weights, const i32* inverse, const T* shared, i64 stride_shared,
                            const T* shared_gate, i64 stride_shared_gate, const OUT* residual,
                            i64 stride_residual) {
  const i64 token = blockIdx.x;
  if (token >= tokens) return;
  for (int column = threadIdx.x; column < H; column += blockDim.x) {
    f64 sum = 0;
    for (i64 pair = token * k; pair < (token + 1) * k; ++pair) {
      if (INVERSE && inverse[pair] < 0) continue;
      sum += to_double(y[pair * stride_y + column]) * (WEIGHTS ? weights[pair] : 1.0f);
    }
    const f64 gate =
        SHARED_GATE ? 1.0 / (1.0 + exp(-to_double(shared_gate[token * stride_shared_gate]))) : 1.0;
    if (SHARED) sum += to_double(shared[token * stride_shared + column]) * gate;
    if (RESIDUAL) sum += to_double(residual[token * stride_residual + column]);
    out[token * stride_out + column] = sum;
  }
}

}  // namespace reference
}  // namespace kiln
