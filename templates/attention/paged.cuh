// The paged key-value cache: where a token's row lies in it, and how an element is stored there.
//
// A cache is pages of page_size tokens; element (page, token in the page, head, i) lies stride_page, stride_slot and stride_head elements apart,
// and i by one: NHD and HND are two orders of the same strides, and one tensor [pages, 2, ...] is two pointers.
#pragma once
#include "kiln/math.cuh"
#include "kiln/vector.cuh"

namespace kiln {

enum class Paging {
  none,          // there is no cache
  slot_mapping,  // a token's slot is page * page_size + token in the page (vLLM); below 0: the token is not stored
  page_table,  // its page is kv_indices[kv_indptr[request] + position / page_size] (FlashInfer); request below 0: it is not stored
};

// An index in order like load: one that an earlier kernel may have written is not read ahead of pdl_wait().
template <typename I>
__device__ __forceinline__ i64 load_index(const I* p) {
  static_assert(same<I, i32> || same<I, i64>, "an index has 4 or 8 bytes");
  const Vec<I, 1> v = load<1>(p);
  if constexpr (sizeof(I) == 4) {
    return static_cast<i32>(v.word[0]);
  } else {
    return static_cast<i64>(static_cast<u64>(v.word[1]) << 32 | v.word[0]);
  }
}

template <typename I>
struct Pages {
  const I* slot_mapping;   // [tokens]
  const I* kv_indices;     // the pages of all requests
  const I* kv_indptr;      // [requests + 1], into kv_indices
  const I* batch_indices;  // [tokens]: the request of each
  i32 page_size;
  i64 stride_page, stride_slot;

  // The slot of a token, or its request: to be loaded well before place() needs it.
  template <Paging PAGING>
  __device__ __forceinline__ i64 key(i64 token) const {
    return load_index((PAGING == Paging::slot_mapping ? slot_mapping : batch_indices) + token);
  }

  // Elements from the begin of a cache to head 0 of the token, or -1: not stored. `position` is the token's in its request, and used with
  // page_table only. REQUIRES: slots and positions below 2^31: a division of 64 bits takes four times as long.
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

// The dequantisation scale of a tensor (stride 0) or of a head (stride 1); null is 1, and so is that of element types that are not fp8.
template <typename KV>
__device__ __forceinline__ f32 load_scale(const f32* scale, i64 stride, int head) {
  if constexpr (is_fp8<KV>) {
    return scale ? load_one(scale + head * stride) : 1.0f;
  } else {
    return 1.0f;
  }
}

// `values` are what `bits` hold, or what they were rounded from: KV = T stores the bits, fp8 divides the values by the scale and rounds them once.
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
