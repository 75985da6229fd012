// Finds and converts elements of the paged cache, for references. The code is naive, computes in 64 bits, and
// shares only names with attention/paged.cuh.
#pragma once
#include "attention/paged.cuh"

namespace kiln {
namespace reference {

struct Place {
  i64 page, entry;
};

// Returns the place of a token in the cache; page < 0 means that the token is not stored.
template <Paging PAGING, typename I>
__device__ Place find_place(i64 token, i64 position, i64 page_size, const I* slot_mapping,
                            const I* kv_indices, const I* kv_indptr, const I* batch_indices) {
  if (PAGING == Paging::slot_mapping) {
    const i64 slot = slot_mapping[token];
    return slot < 0 ? Place{-1, 0} : Place{slot / page_size, slot % page_size};
  }
  const i64 request = batch_indices[token];
  return request < 0 ? Place{-1, 0}
                     : Place{static_cast<i64>(kv_indices[kv_indptr[request] + position / page_size]),
                             position % page_size};
}

// Returns x as the cache holds it, but not rounded. scale[at] is the scale of x; a null `scale` means 1. If T
// is fp8, x is copied, whether there is a scale or not.
template <typename T, typename KV>
__device__ f64 cached(f64 x, const f32* scale, i64 at) {
  if (same<T, KV> || !is_fp8<KV>) return x;
  const f64 y = scale ? x / static_cast<f64>(scale[at]) : x;
  const f64 largest = same<KV, e4m3> ? 448.0 : 57344.0;
  return y > largest ? largest : y < -largest ? -largest : y;
}

}  // namespace reference
}  // namespace kiln
