// The gate of a mixture of experts and the sort of its pairs by expert, in one launch for few tokens: topk_gate,
// then moe_align, by the blocks of one cluster.
//
// Warps choose the experts of tokens (gate.cuh), and send each expert to the shared memory of the block that
// sorts the pair. A block that has the experts of all its pairs begins to sort (align.cuh). Ids are therefore not
// read back from global memory, and no barrier of the cluster waits for the stores to it.
#include "kiln/pdl.cuh"
#include "moe/align.cuh"
#include "moe/gate.cuh"
#include "moe/quantise.cuh"

namespace kiln {

// The largest number of tokens.
inline constexpr int ROUTE_TOKENS = 512;

// REQUIRES: 32 * WARPS <= THREADS, and what Align requires.
// REQUIRES: a row of the grid has CLUSTER blocks, or enough for one token of each team. The rows after the first one have
// a team of QUANTISE_TEAM threads for each group of 128 elements of x.
template <typename T, int E, int K, Score SCORE, bool BIAS, bool RENORM, int GROUPS, int TOPK_GROUPS,
          int BLOCK, bool LOCAL_ONLY, int VEC, int LANES, int WARPS, int THREADS, int CLUSTER, typename X,
          int H>
__global__ void __launch_bounds__(THREADS, 1)
    moe_route(f32* weights, i32* sorted_token_ids, i32* expert_ids, i32* num_tokens_post_padded, i32* inverse,
              const T* logits, i32 tokens, i64 stride_logits, i32 capacity, f32 scale, const f32* bias,
              const i32* expert_map, i32* ids, const X* x, i64 stride_x, e4m3* codes, f32* scales) {
  using Tokens = Gate<T, E, K, SCORE, BIAS, RENORM, GROUPS, TOPK_GROUPS, VEC, LANES>;
  using Pairs = Align<E, BLOCK, LOCAL_ONLY, THREADS, CLUSTER>;
  constexpr int MOST_PAIRS = THREADS * static_cast<int>(ceil_div(ROUTE_TOKENS * K, THREADS * CLUSTER));
  // [MOST_PAIRS]: the experts of this block's pairs. Then the memory of the warps that choose, which takes
  // a multiple of 8 bytes. Then the words of the sort.
  extern __shared__ __align__(8) i32 shared[];
  if constexpr (H > 0) {
    if (blockIdx.y > 0) {
      pdl_launch_dependents();
      pdl_wait();
      quantise_rows<H, THREADS>(codes, scales, x, tokens, stride_x,
                                (blockIdx.y - 1) * gridDim.x + blockIdx.x);
      return;
    }
  }
  i32* const chosen = shared;
  const auto memory = reinterpret_cast<typename Tokens::Memory*>(chosen + MOST_PAIRS);
  const Pairs pairs(reinterpret_cast<i32*>(memory + WARPS), tokens * K);

  __shared__ Barrier told;  // with several blocks: counts the bytes of `chosen`
  const u32 block_pairs = pairs.slice * Pairs::WARPS;
  if (!pairs.alone && pairs.thread == 0) {
    told.init(1);
    const i32 first = smaller(pairs.n, pairs.rank * block_pairs);
    told.arrive_expecting(4 * (smaller(pairs.n, first + block_pairs) - first));
    barriers_ready();
  }
  pdl_launch_dependents();  // at once, because this kernel takes only a few SMs
  pairs.clear();
  __syncthreads();
  if (!pairs.alone) {
    cluster_arrive_relaxed();
    cluster_wait();            // every block of the cluster runs, so its shared memory may be written
    cluster_arrive_relaxed();  // for the wait in sort()
  }
  pdl_wait();

  if (pairs.warp < WARPS) {
#pragma unroll 1
    for (int first = (pairs.rank * WARPS + pairs.warp) * Tokens::TEAMS; first < tokens;
         first += pairs.blocks * WARPS * Tokens::TEAMS) {
      const int own_token = first + pairs.lane / LANES;
      // A team without a token reads the last token, and stores nothing.
      const T* row = logits + smaller(own_token, tokens - 1) * stride_logits;
      Tokens::choose(
          memory[pairs.warp], pairs.lane, row, bias, [] {},
          [&](int slot, int expert, f32 weight) {
            if (own_token >= tokens) return;
            const u32 pair = own_token * K + slot;
            weights[pair] = weight * scale;
            if (ids) ids[pair] = expert;
            if (pairs.alone) {
              chosen[pair] = expert;
            } else {
              cluster_send(chosen + pair % block_pairs, pair / block_pairs, expert, told);
            }
          });
      __syncwarp();  // all lanes have read `memory`
    }
  }
  const Aligned to = {sorted_token_ids, expert_ids, num_tokens_post_padded, inverse, capacity, expert_map};
  pairs.fill(to);
  if (pairs.alone) {
    __syncthreads();
  } else {
    told.wait(0);
  }
  const i32* const of_warp = chosen + pairs.warp * pairs.slice + pairs.lane;
  pairs.sort(
      to, [&](int, i32 round) { return of_warp[round - pairs.begin]; }, [] {});
}

}  // namespace kiln
