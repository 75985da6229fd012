// Naive reference for moe_align: the alignment by one block. Each thread takes whole experts and walks all
// ids for each of them.
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename ID, int E, int BLOCK, bool LOCAL_ONLY>
__global__ void moe_align(f64* sorted_token_ids, f64* expert_ids, f64* num_tokens_post_padded, f64* inverse,
                          const ID* topk_ids, i32 tokens, i32 k, i64 stride_ids, i32 capacity,
                          const i32* expert_map) {
  __shared__ i64 start[E + 1];
  const i64 n = static_cast<i64>(tokens) * k;
  const auto id_of = [&](i64 i) { return topk_ids[i / k * stride_ids + i % k]; };
  for (i64 i = threadIdx.x; i < capacity; i += blockDim.x) sorted_token_ids[i] = static_cast<f64>(n);
  for (i64 i = threadIdx.x; i < capacity / BLOCK; i += blockDim.x) expert_ids[i] = -1;
  for (i64 i = threadIdx.x; i < n; i += blockDim.x) inverse[i] = -1;
  for (int e = threadIdx.x; e < E; e += blockDim.x) {
    i64 count = 0;
    for (i64 i = 0; i < n; ++i) count += id_of(i) == e && !(LOCAL_ONLY && expert_map[e] < 0);
    start[e + 1] = ceil_div(count, BLOCK) * BLOCK;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    start[0] = 0;
    for (int e = 0; e < E; ++e) start[e + 1] += start[e];
    *num_tokens_post_padded = static_cast<f64>(start[E]);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < E; e += blockDim.x) {
    i64 place = start[e];
    for (i64 i = 0; i < n && place < start[e + 1]; ++i) {
      if (id_of(i) != e) continue;
      inverse[i] = static_cast<f64>(place);
      sorted_token_ids[place++] = static_cast<f64>(i);
    }
    for (i64 b = start[e] / BLOCK; b < start[e + 1] / BLOCK; ++b)
      expert_ids[b] = expert_map ? expert_map[e] : e;
  }
}

}  // namespace reference
}  // namespace kiln
