// The normalisations and gates of row_norm, which the kernel and its reference share.
#pragma once

namespace kiln {

enum class Norm {
  rms,    // x * rsqrt(mean(x^2) + eps)
  layer,  // (x - mean(x)) * rsqrt(mean((x - mean(x))^2) + eps)
  l2,     // x * rsqrt(sum(x^2) + eps)
};
enum class NormGate {
  none,
  silu,        // the result is multiplied by z * sigmoid(z)
  sigmoid,     // the result is multiplied by sigmoid(z)
  silu_first,  // x is multiplied by z * sigmoid(z) before it is normalised
};

}  // namespace kiln
