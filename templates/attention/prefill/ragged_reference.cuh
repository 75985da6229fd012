// Naive attention of a batch, ragged or in pages, for references: it computes one q head of one token at a time in double. Any number of
// blocks share the work; each has at least DV / 4 threads. It reads the lengths of the work list, and none of its items.
#pragma once
#include "attention/work_list.cuh"
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"

namespace kiln {
namespace reference {

template <typename T, int D, int DV, int GROUP, bool CAUSAL, bool WINDOW, bool SOFT_CAP, bool ALIBI,
          bool MASK, bool PAGED, bool SINK>
__device__ void ragged_attention(f64* o, const T* q, const T* k, const T* v, i32* plan, i32 workers,
                                 i32 kv_heads, i64 stride_o, i64 stride_o_head, i64 stride_q,
                                 i64 stride_q_head, i64 stride_k, i64 stride_k_head, i64 stride_v,
                                 i64 stride_v_head, f32 sm_scale, f64* lse, f32 soft_cap, i32 window_left,
                                 const f32* alibi_slopes, const u8* mask, const i32* mask_indptr,
                                 const i32* kv_indices, i32 page_size, i64 stride_k_page, i64 stride_v_page,
                                 i32 window_right, const f32* sinks, const f32* q_scale = nullptr,
                                 const f32* k_scale = nullptr, const f32* v_scale = nullptr,
                                 i64 stride_scale = 0) {
  constexpr int BATCH = 1024;  // kv tokens whose logits are in shared memory
  constexpr f64 LARGEST = 1e300;
  __shared__ f64 logits[BATCH];
  const i64 heads = kv_heads * GROUP, tokens = reinterpret_cast<const AttentionHeader*>(plan)->tokens;
  const AttentionPlan work{plan, workers};
  const f64 scale = sm_scale == 0.0f ? 1.0 / sqrt(static_cast<f64>(D)) : sm_scale;

  for (i64 row = blockIdx.x; row < tokens * heads; row += gridDim.x) {
    const i64 token = row / heads, head = row % heads;
    const auto scale_of = [&](const f32* of) {
      return of ? static_cast<f64>(of[head / GROUP * stride_scale]) : 1.0;
    };
    int request = 0;
    while (token >= work.request(request).qo_begin + work.request(request).qo_len) ++request;
    const AttentionRequest of = work.request(request);
    const i64 qo = token - of.qo_begin, ahead = of.kv_len - of.qo_len;

    // Returns the distance from the start of k or v to the row of a kv token.
    const auto row_of = [&](i64 kv, i64 stride_page, i64 stride) {
      return PAGED ? kv_indices[of.kv_base + kv / page_size] * stride_page + kv % page_size * stride
                   : (of.kv_base + kv) * stride;
    };
    const auto logit = [&](i64 kv) {
      bool sees = CAUSAL && !MASK ? kv <= qo + ahead : true;
      if (WINDOW && window_left >= 0) sees = sees && kv + window_left >= qo + ahead;
      if (WINDOW && window_right >= 0 && !(CAUSAL && !MASK)) sees = sees && kv <= qo + ahead + window_right;
      if (MASK) {
        const i64 bit = qo * of.kv_len + kv;
        sees = sees && (mask[mask_indptr[request] + bit / 8] >> (bit % 8) & 1) != 0;
      }
      if (!sees) return -LARGEST;
      f64 x = 0;
      const T* const q_row = q + token * stride_q + head * stride_q_head;
      const T* const k_row = k + row_of(kv, stride_k_page, stride_k) + head / GROUP * stride_k_head;
      for (int i = 0; i < D; ++i) x += to_double(q_row[i]) * to_double(k_row[i]);
      x *= scale * scale_of(q_scale) * scale_of(k_scale);
      if (ALIBI) x += alibi_slopes[head] * static_cast<f64>(kv - qo);
      return SOFT_CAP ? soft_cap * tanh(x / soft_cap) : x;
    };

    // `out` has the sums of v for columns threadIdx.x, threadIdx.x + blockDim.x, and so on.
    f64 largest = -LARGEST, sum = 0, out[4] = {};
    if (SINK) largest = sinks[head], sum = 1;
    for (i64 begin = 0; begin < of.kv_len; begin += BATCH) {
      const int count = static_cast<int>(of.kv_len - begin < BATCH ? of.kv_len - begin : BATCH);
      __syncthreads();
      for (int i = threadIdx.x; i < count; i += blockDim.x) logits[i] = logit(begin + i);
      __syncthreads();
      f64 top = largest;
      for (int i = 0; i < count; ++i) top = fmax(top, logits[i]);
      const f64 factor = largest == -LARGEST ? 0.0 : exp(largest - top);
      largest = top, sum *= factor;
      for (f64& x : out) x *= factor;
      for (int i = 0; i < count; ++i) {
        if (logits[i] == -LARGEST) continue;
        const f64 weight = exp(logits[i] - top);
        sum += weight;
        for (int j = 0, c = threadIdx.x; c < DV; ++j, c += blockDim.x)
          out[j] +=
              weight *
              to_double(v[row_of(begin + i, stride_v_page, stride_v) + head / GROUP * stride_v_head + c]);
      }
    }
    for (int j = 0, c = threadIdx.x; c < DV; ++j, c += blockDim.x)
      o[token * stride_o + head * stride_o_head + c] = sum > 0 ? out[j] / sum * scale_of(v_scale) : 0.0;
    if (lse && threadIdx.x == 0)
      lse[row] = sum > 0 ? (largest + log(sum)) / log(2.0) : -static_cast<f64>(infinity());
  }
}

}  // namespace reference
}  // namespace kiln
