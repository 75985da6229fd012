// Naive reference for mla_decode: it attends to a paged latent cache in double. A block of 512 threads computes one head of one
// token at a time, and each thread one element of the result. It reads the requests of the work list, and none of its items.
#include "attention/work_list.cuh"
#include "kiln/dtype.cuh"
#include "kiln/math.cuh"

namespace kiln {
namespace reference {

// Returns element i of a row of the cache. A code times its scale is rounded to T.
template <typename T, typename KV>
__device__ f64 latent_element(const KV* row, int i) {
  if constexpr (same<KV, T>) {
    return to_double(row[i]);
  } else {
    if (i >= 512) return to_double(reinterpret_cast<const T*>(row + 528)[i - 512]);
    return to_double(from_float<T>(to_float(row[i]) * reinterpret_cast<const f32*>(row + 512)[i / 128]));
  }
}

template <typename T, typename KV, int HEADS, bool CAUSAL>
__global__ void __launch_bounds__(512)
    mla_decode(f64* o, const T* q, const KV* kv_cache, const i32* kv_indices, i32* plan, f32* workspace,
               i32 workers, i32 pages, i32 page_size, i64 stride_o, i64 stride_o_head, i64 stride_q,
               i64 stride_q_head, i64 stride_page, i64 stride_slot, f32 sm_scale, f64* lse, i32) {
  constexpr int KEYS = 576, VALUES = 512;
  __shared__ f64 logit[VALUES], partial[VALUES];
  const AttentionPlan work{plan, workers};
  const int thread = threadIdx.x;

  for (i64 i = blockIdx.x; i < static_cast<i64>(work.requests()) * HEADS; i += gridDim.x) {
    const AttentionRequest request = work.request(static_cast<i32>(i / HEADS));
    const i64 head = i % HEADS;
    for (int t = 0; t < request.qo_len; ++t) {
      const i64 token = request.qo_begin + t,
                last = CAUSAL ? static_cast<i64>(request.kv_len) - request.qo_len + t : request.kv_len - 1;
      const auto row = [&](i64 kv) {
        const i64 page = kv_indices[request.kv_base + kv / page_size];
        return kv_cache + page * stride_page + kv % page_size * stride_slot;
      };
      const auto logit_of = [&](i64 kv) {
        const KV* const k = row(kv);
        f64 x = 0;
        for (int d = 0; d < KEYS; ++d)
          x += to_double(q[token * stride_q + head * stride_q_head + d]) * latent_element<T>(k, d);
        return x * static_cast<f64>(sm_scale);
      };

      f64 largest = -1e300;
      for (i64 kv = thread; kv <= last; kv += VALUES) largest = fmax(largest, logit_of(kv));
      partial[thread] = largest;
      __syncthreads();
      for (int j = 0; j < VALUES; ++j) largest = fmax(largest, partial[j]);

      f64 sum = 0, mean = 0;  // `mean` belongs to element `thread` of the result
      for (i64 begin = 0; begin <= last; begin += VALUES) {
        __syncthreads();
        if (begin + thread <= last) logit[thread] = exp(logit_of(begin + thread) - largest);
        __syncthreads();
        for (i64 kv = begin; kv <= last && kv < begin + VALUES; ++kv) {
          sum += logit[kv - begin];
          mean += logit[kv - begin] * latent_element<T>(row(kv), thread);
        }
      }
      o[token * stride_o + head * stride_o_head + thread] = sum > 0 ? mean / sum : 0.0;
      if (lse && thread == 0)
        lse[token * HEADS + head] = sum > 0 ? (largest + log(sum)) / log(2.0) : -static_cast<f64>(infinity());
      __syncthreads();
    }
  }
}

}  // namespace reference
}  // namespace kiln
