// A row of a latent cache: the compressed keys and values of a token, and its rotated keys.
//
// With KV = T (bf16 or f16) a row has 512 elements, then 64 rotated ones. With KV = e4m3 it has 656 bytes, as FlashMLA reads them:
// 512 codes, four scales (f32) of 128 codes each, and 64 rotated elements of T.
#pragma once
#include "kiln/dtype.cuh"

namespace kiln {

struct LatentRow {
  enum : int { VALUES = 512, ROTATED = 64, KEYS = VALUES + ROTATED };      // elements
  enum : int { GROUP = 128, GROUPS = VALUES / GROUP };                     // codes that share a scale
  enum : int { SCALES_AT = VALUES, ROTATED_AT = SCALES_AT + 4 * GROUPS };  // bytes of a row of codes

  // The size of a row in elements of KV.
  template <typename KV>
  __device__ static constexpr int size() {
    return sizeof(KV) == 1 ? ROTATED_AT + 2 * ROTATED : KEYS;
  }
};

}  // namespace kiln
