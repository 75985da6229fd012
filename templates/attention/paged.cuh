// Finds a token's row in the paged key-value cache, and stores elements there.
//
// A cache has pages of page_size tokens. stride_page, stride_slot and stride_head are the distances, in
// elements, between neighbouring pages, tokens of a page and heads. The elements of a head are
// contiguous. NHD and HND are two orders of the same strides. For one tensor [pages, 2, ...] the caller
// passes two pointers.
#pragma once
#include "kiln/math.cuh"
#include "kiln/vector.cuh"

namespace kiln {

enum class Paging {
  none,  // there is no cache
  // A token's slot is page * page_size + token in the page (vLLM).
  // A negative slot means that the token is not stored.
  slot_mapping,
  // A token's page is kv_indices[kv_indptr[request] + position / page_size] (FlashInfer).
  // A negative request means that the token is not stored.
  page_table,
};

// Loads an index in program order, as load() does. An index that an earlier kernel may have written is
// therefore not read before pdl_wait().
template <typename I>
__device__ __forceinline__ i64 load_index(const I* p) {
  static_assert(same<I, i32> || same<I, i64>, "an index must be i32 or i64");
  const Vec<I, 1> v = load<1>(p);
  if constexpr (sizeof(I) == 4) {
    return static_cast<i32>(v.word[0]);
  } else {
    return static_cast<i64>(static_cast<u64>(v.word[1]) << 32 | v.word[0]);
  }
}

// Finds the place of a token in a cache, in either kind of paging.
template <typename I>
struct Pages {
  const I* slot_mapping;   // [tokens]
  const I* kv_indices;     // the pages of all requests
  const I* kv_indptr;      // [requests + 1], into kv_indices
  const I* batch_indices;  // [tokens]: the request of each token
  i32 page_size;
  i64 stride_page, stride_slot;

  // Returns the slot of a token, or its request. Call it well before place(), which needs the result.
  template <Paging PAGING>
  __device__ __forceinline__ i64 key(i64 token) const {
    return load_index((PAGING == Paging::slot_mapping ? slot_mapping : batch_indices) + token);
  }

  // Returns the number of elements from the start of a cache to head 0 of the token, or -1 if the token is
  // not stored. `key` is the result of key(). `position` is the token's position in its request; only
  // page_table uses it.
  // REQUIRES: slots and positions are below 2^31, because a division of 64 bits takes four times as long.
  template <Paging PAGING>
  __device__ __forceinline__ i64 place(i64 key, i64 position) const {
    if (key < 0) return -1;
    const u32 slot = static_cast<u32>(PAGING == Paging::slot_mapping ? key : position),
              nth = slot / page_size;
    i64 page = nth;
    if constexpr (PAGING == Paging::page_table)
      page = load_index(kv_indices + load_index(kv_indptr + key) + nth);
    return page * stride_page + (slot - nth * page_size) * stride_slot;
  }
};

// Returns the dequantisation scale of a tensor (stride 0) or of a head (stride 1). It is 1 if `scale` is
// null, and for element types that are not fp8.
template <typename KV>
__device__ __forceinline__ f32 load_scale(const f32* scale, i64 stride, int head) {
  if constexpr (is_fp8<KV>) {
    return scale ? load_one(scale + head * stride) : 1.0f;
  } else {
    return 1.0f;
  }
}

// Stores N elements at p. `values` are the values that `bits` hold, or the values before they were rounded to
// `bits`. With KV = T the bits are stored. With fp8 the values are multiplied by the scale's reciprocal, and
// rounded once.
template <typename KV, typename T, int N>
__device__ __forceinline__ void store_cached(KV* p, const Vec<T, N>& bits, const f32 (&values)[N],
                                             f32 scale) {
  if constexpr (same<KV, T>) {
    store(p, bits);
  } else {
    const f32 quantum = is_fp8<KV> ? reciprocal_approx(scale) : 1.0f;
    f32 scaled[N];
#pragma unroll
    for (int i = 0; i < N; ++i) scaled[i] = is_fp8<KV> ? values[i] * quantum : values[i];
    store(p, narrow<KV>(scaled));
  }
}

}  // namespace kiln
