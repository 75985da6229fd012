// Naive reference for rope: it computes rotary position embedding in double. The grid has one block, of any
// size, per token. Results are not rounded to the output's dtype, but saturate in the cache as fp8 does.
#include "attention/paged_reference.cuh"
#include "attention/rotary.cuh"
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, int D, int ROTARY, bool INTERLEAVE, typename POSITION, Angles ANGLES, typename TABLE,
          Paging PAGING, typename KV, typename I>
__global__ void rope(f64* q_out, f64* k_out, const T* q, const T* k, const POSITION* positions, i32 tokens,
                     i32 q_heads, i32 kv_heads, i64 stride_q, i64 stride_q_head, i64 stride_k,
                     i64 stride_k_head, i64 stride_q_out, i64 stride_q_out_head, i64 stride_k_out,
                     i64 stride_k_out_head, const TABLE* cos_sin, f32 rope_theta, f32 rope_scale,
                     f32 low_freq_factor, f32 high_freq_factor, f32 old_context_length, const T* v,
                     i64 stride_v, i64 stride_v_head, f64* k_cache, f64* v_cache, i32 page_size,
                     i64 stride_page, i64 stride_slot, i64 stride_cache_head, const I* slot_mapping,
                     const I* kv_indices, const I* kv_indptr, const I* batch_indices,
                     const I* cache_positions, const f32* k_scale, const f32* v_scale, i64 stride_scale) {
  const i64 token = blockIdx.x;
  if (token >= tokens) return;
  const f64 position = static_cast<f64>(positions[token]);

  const auto turned = [&](const T* head, int i) {
    if (i >= ROTARY) return to_double(head[i]);
    const int pair = INTERLEAVE ? i / 2 : i % (ROTARY / 2);
    const bool first = INTERLEAVE ? i % 2 == 0 : i < ROTARY / 2;
    f64 cosine, sine;
    if (ANGLES == Angles::table) {
      const TABLE* row = cos_sin + positions[token] * static_cast<i64>(ROTARY);
      cosine = to_double(row[pair]);
      sine = to_double(row[ROTARY / 2 + pair]);
    } else {
      const f64 frequency = pow(static_cast<f64>(rope_theta), -2.0 * pair / ROTARY);
      f64 share = 0;  // the part of the frequency that is not scaled
      if (ANGLES == Angles::llama31) {
        const f64 turns = frequency * old_context_length / 6.283185307179586477;
        share = fmin(
            fmax((turns - low_freq_factor) / (static_cast<f64>(high_freq_factor) - low_freq_factor), 0.0),
            1.0);
      }
      const f64 angle = position * ((1 - share) * frequency / rope_scale + share * frequency);
      cosine = cos(angle);
      sine = sin(angle);
    }
    const int other = INTERLEAVE ? i ^ 1 : first ? i + ROTARY / 2 : i - ROTARY / 2;
    const f64 own = to_double(head[i]), partner = to_double(head[other]);
    return first ? own * cosine - partner * sine : own * cosine + partner * sine;
  };

  for (int j = threadIdx.x; j < q_heads * D; j += blockDim.x) {
    q_out[token * stride_q_out + j / D * stride_q_out_head + j % D] =
        turned(q + token * stride_q + j / D * stride_q_head, j % D);
  }
  for (int j = threadIdx.x; j < kv_heads * D; j += blockDim.x) {
    const int head = j / D, i = j % D;
    const f64 key = turned(k + token * stride_k + head * stride_k_head, i);
    if (k_out) k_out[token * stride_k_out + head * stride_k_out_head + i] = key;
    if (PAGING == Paging::none) continue;
    const i64 cached_at =
        cache_positions ? static_cast<i64>(cache_positions[token]) : static_cast<i64>(positions[token]);
    const Place place =
        find_place<PAGING>(token, cached_at, page_size, slot_mapping, kv_indices, kv_indptr, batch_indices);
    if (place.page < 0) continue;
    const i64 at = place.page * stride_page + place.entry * stride_slot + head * stride_cache_head + i;
    k_cache[at] = cached<T, KV>(key, k_scale, head * stride_scale);
    v_cache[at] = cached<T, KV>(to_double(v[token * stride_v + head * stride_v_head + i]), v_scale,
                                head * stride_scale);
  }
}

}  // namespace reference
}  // namespace kiln
