// Naive reference for moe_align: the alignment by one block.
#include "moe/moe_reference.cuh"

namespace kiln {
namespace reference {

template <typename ID, int E, int BLOCK, bool LOCAL_ONLY>
__global__ void __launch_bounds__(1024)
    moe_align(f64* sorted_token_ids, f64* expert_ids, f64* num_tokens_post_padded, f64* inverse,
              const ID* topk_ids, i32 tokens, i32 k, i64 stride_ids, i32 capacity, const i32* expert_map) {
  align<ID, E, BLOCK, LOCAL_ONLY>(sorted_token_ids, expert_ids, num_tokens_post_padded, inverse, topk_ids,
                                  tokens, k, stride_ids, capacity, expert_map);
}

}  // namespace reference
}  // namespace kiln
