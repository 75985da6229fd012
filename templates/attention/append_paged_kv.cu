// Appends rows of k and v to the pages of a cache, optionally quantised to fp8.
//
// A team of D / VEC threads (LANES in the manifest) shares a head, and takes k and v of UNROLL heads of one
// token. It looks up the token's page once, while the loads of k and v are under way.
#include "attention/paged.cuh"
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// REQUIRES: blockDim = (D / VEC, TEAMS), tokens * ceil(kv_heads / UNROLL) < 2^31.
template <typename T, typename KV, int D, typename I, Paging PAGING, int VEC, int TEAMS, int UNROLL>
__global__ void __launch_bounds__(D / VEC * TEAMS, resident_blocks(D / VEC * TEAMS))
    append_paged_kv(KV* k_cache, KV* v_cache, const T* k, const T* v, i32 tokens, i32 kv_heads, i32 page_size,
                    i64 stride_k, i64 stride_k_head, i64 stride_v, i64 stride_v_head, i64 stride_page,
                    i64 stride_slot, i64 stride_cache_head, const I* slot_mapping, const I* kv_indices,
                    const I* kv_indptr, const I* batch_indices, const I* positions, const f32* k_scale,
                    const f32* v_scale, i64 stride_scale) {
  const u32 slices = (kv_heads + UNROLL - 1) / UNROLL;
  const u32 team = blockIdx.x * TEAMS + threadIdx.y;
  if (team >= tokens * slices) return;
  const i64 token = team / slices;
  // `own` is the first of the team's heads.
  const int own = static_cast<int>(team % slices) * UNROLL, column = threadIdx.x * VEC;
  const auto has = [&](int i) { return own + i < kv_heads; };
  const Pages<I> pages{slot_mapping, kv_indices,  kv_indptr,  batch_indices,
                       page_size,    stride_page, stride_slot};

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  const i64 key = pages.template key<PAGING>(token),
            position = PAGING == Paging::page_table ? load_index(positions + token) : 0;
  Vec<T, VEC> a[UNROLL], b[UNROLL];  // vectors of k, and of v
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (!has(i)) continue;
    a[i] = load<VEC>(k + token * stride_k + (own + i) * stride_k_head + column);
    b[i] = load<VEC>(v + token * stride_v + (own + i) * stride_v_head + column);
  }
  f32 k_scales[UNROLL], v_scales[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (!has(i)) continue;
    k_scales[i] = load_scale<KV>(k_scale, stride_scale, own + i);
    v_scales[i] = load_scale<KV>(v_scale, stride_scale, own + i);
  }
  pdl_launch_dependents();
  const i64 place = pages.template place<PAGING>(key, position);
  if (place < 0) return;

#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (!has(i)) continue;
    const i64 at = place + (own + i) * stride_cache_head + column;
    f32 x[VEC], y[VEC];
    widen(a[i], x);
    widen(b[i], y);
    store_cached(k_cache + at, a[i], x, k_scales[i]);
    store_cached(v_cache + at, b[i], y, v_scales[i]);
  }
}

}  // namespace kiln
