// Naive reference for attn_decode_paged: it attends to a paged cache in double. A block computes one q head
// of one token at a time. The reference reads the requests of the work list, not the items. It finds pages
// and logits with code of its own. REQUIRES: blocks have at least DV and at most 1024 threads.
#include "attention/work_list.cuh"
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, typename KV, int D, int DV, int GROUP, bool SOFT_CAP, bool ALIBI>
__global__ void attn_decode_paged(f64* o, const T* q, const KV* k_cache, const KV* v_cache,
                                  const i32* kv_indices, i32* plan, f32* workspace, i32 workers, i32 kv_heads,
                                  i32 page_size, i64 stride_o, i64 stride_o_head, i64 stride_q,
                                  i64 stride_q_head, i64 stride_k_page, i64 stride_k_slot, i64 stride_k_head,
                                  i64 stride_v_page, i64 stride_v_slot, i64 stride_v_head, f32 sm_scale,
                                  f64* lse, f32 soft_cap, i32 window_left, const f32* alibi_slopes,
                                  const f32* k_scale, const f32* v_scale, i64 stride_scale, i32) {
  __shared__ f64 logit[1024], partial[1024];
  const AttentionPlan work{plan, workers};
  const int threads = blockDim.x, thread = threadIdx.x, heads = kv_heads * GROUP;
  const f64 scale = sm_scale == 0.0f ? 1.0 / sqrt(static_cast<f64>(D)) : static_cast<f64>(sm_scale);

  for (i64 i = blockIdx.x; i < static_cast<i64>(work.requests()) * heads; i += gridDim.x) {
    const AttentionRequest request = work.request(static_cast<i32>(i / heads));
    const i64 head = i % heads, kv_head = head / GROUP;
    for (int t = 0; t < request.qo_len; ++t) {
      const i64 token = request.qo_begin + t, own = request.kv_len - request.qo_len + t;
      const i64 first = window_left >= 0 && own - window_left > 0 ? own - window_left : 0;
      const auto page = [&](i64 kv) {
        return static_cast<i64>(kv_indices[request.kv_base + kv / page_size]);
      };
      const auto logit_of = [&](i64 kv) {
        const KV* k =
            k_cache + page(kv) * stride_k_page + kv % page_size * stride_k_slot + kv_head * stride_k_head;
        f64 x = 0;
        for (int d = 0; d < D; ++d)
          x += to_double(q[token * stride_q + head * stride_q_head + d]) * to_double(k[d]);
        x *= scale * (is_fp8<KV> && k_scale ? static_cast<f64>(k_scale[kv_head * stride_scale]) : 1.0);
        if (ALIBI) x += static_cast<f64>(alibi_slopes[head]) * static_cast<f64>(kv - t);
        return SOFT_CAP ? static_cast<f64>(soft_cap) * tanh(x / static_cast<f64>(soft_cap)) : x;
      };

      f64 largest = -1e300;
      for (i64 kv = first + thread; kv <= own; kv += threads) largest = fmax(largest, logit_of(kv));
      partial[thread] = largest;
      __syncthreads();
      for (int j = 0; j < threads; ++j) largest = fmax(largest, partial[j]);

      f64 sum = 0, mean = 0;  // `mean` belongs to element `thread` of v
      for (i64 begin = first; begin <= own; begin += threads) {
        __syncthreads();
        if (begin + thread <= own) logit[thread] = exp(logit_of(begin + thread) - largest);
        __syncthreads();
        for (i64 kv = begin; kv <= own && kv < begin + threads; ++kv) {
          const KV* v =
              v_cache + page(kv) * stride_v_page + kv % page_size * stride_v_slot + kv_head * stride_v_head;
          sum += logit[kv - begin];
          if (thread < DV) mean += logit[kv - begin] * to_double(v[thread]);
        }
      }
      const f64 factor = is_fp8<KV> && v_scale ? static_cast<f64>(v_scale[kv_head * stride_scale]) : 1.0;
      if (thread < DV)
        o[token * stride_o + head * stride_o_head + thread] = sum > 0 ? mean / sum * factor : 0.0;
      if (lse && thread == 0)
        lse[token * heads + head] = sum > 0 ? (largest + log(sum)) * 1.4426950408889634074 : log2(0.0);
      __syncthreads();
    }
  }
}

}  // namespace reference
}  // namespace kiln
