// Naive reference for append_paged_kv: it scatters k and v to the pages of a cache in double. The grid has
// one block, of any size, per token. Values saturate as fp8 does, but are not rounded to fp8.
#include "attention/paged_reference.cuh"
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, typename KV, int D, typename I, Paging PAGING>
__global__ void append_paged_kv(f64* k_cache, f64* v_cache, const T* k, const T* v, i32 tokens, i32 kv_heads,
                                i32 page_size, i64 stride_k, i64 stride_k_head, i64 stride_v,
                                i64 stride_v_head, i64 stride_page, i64 stride_slot, i64 stride_cache_head,
                                const I* slot_mapping, const I* kv_indices, const I* kv_indptr,
                                const I* batch_indices, const I* positions, const f32* k_scale,
                                const f32* v_scale, i64 stride_scale) {
  const i64 token = blockIdx.x;
  if (token >= tokens) return;
  const i64 position = PAGING == Paging::page_table ? static_cast<i64>(positions[token]) : 0;
  const Place place =
      find_place<PAGING>(token, position, page_size, slot_mapping, kv_indices, kv_indptr, batch_indices);
  if (place.page < 0) return;
  for (int j = threadIdx.x; j < kv_heads * D; j += blockDim.x) {
    const int head = j / D, i = j % D;
    const i64 at = place.page * stride_page + place.entry * stride_slot + head * stride_cache_head + i;
    k_cache[at] = cached<T, KV>(to_double(k[token * stride_k + head * stride_k_head + i]), k_scale,
                                head * stride_scale);
    v_cache[at] = cached<T, KV>(to_double(v[token * stride_v + head * stride_v_head + i]), v_scale,
                                head * stride_scale);
  }
}

}  // namespace reference
}  // namespace kiln
