// Appends rows to a paged latent cache, optionally quantised to fp8 in groups of 128 elements.
//
// A warp has a token. Each lane moves 16 elements of the 512, and the first eight lanes 8 rotated elements each.
#include "attention/paged.cuh"
#include "kiln/pdl.cuh"
#include "kiln/quantum.cuh"
#include "mla/latent_row.cuh"

namespace kiln {

// REQUIRES: blockDim = (32, WARPS).
template <typename T, typename KV, typename I, bool POW2, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, resident_blocks(32 * WARPS))
    mla_append(KV* kv_cache, const T* c_kv, const T* k_pe, i32 tokens, i32 page_size, i64 stride_c,
               i64 stride_pe, i64 stride_page, i64 stride_slot, const I* slot_mapping) {
  constexpr int VEC = 8, CHUNKS = LatentRow::VALUES / (32 * VEC);
  const int lane = threadIdx.x;
  const i64 token = static_cast<i64>(blockIdx.x) * WARPS + threadIdx.y;
  const Pages<I> pages{slot_mapping, nullptr, nullptr, nullptr, page_size, stride_page, stride_slot};
  const bool rotates = lane < LatentRow::ROTATED / VEC;

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  if (token >= tokens) return;
  const i64 key = pages.template key<Paging::slot_mapping>(token);
  Vec<T, VEC> x[CHUNKS], rotated;
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) x[i] = load<VEC>(c_kv + token * stride_c + (i * 32 + lane) * VEC);
  if (rotates) rotated = load<VEC>(k_pe + token * stride_pe + lane * VEC);
  pdl_launch_dependents();
  const i64 place = pages.template place<Paging::slot_mapping>(key, 0);
  if (place < 0) return;
  KV* const row = kv_cache + place;

#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    const int chunk = i * 32 + lane;
    if constexpr (same<KV, T>) {
      store(row + chunk * VEC, x[i]);
    } else {
      constexpr int LANES = LatentRow::GROUP / VEC;  // that share a scale
      const f32 scale = scale_of<KV, POW2>(warp_reduce<LANES>(amax_of(x[i]), Max{}), 0.0f),
                reciprocal = 1.0f / scale;
      f32 codes[VEC];
      widen(x[i], codes);
#pragma unroll
      for (f32& code : codes) code = divide_any(code, scale, reciprocal);
      store(row + chunk * VEC, narrow<KV>(codes));
      f32* const scales = reinterpret_cast<f32*>(row + LatentRow::SCALES_AT);
      if (lane % LANES == 0) scales[chunk / LANES] = scale;
    }
  }
  T* const rotated_at =
      reinterpret_cast<T*>(row + (same<KV, T> ? int{LatentRow::VALUES} : int{LatentRow::ROTATED_AT}));
  if (rotates) store(rotated_at + lane * VEC, rotated);
}

}  // namespace kiln
