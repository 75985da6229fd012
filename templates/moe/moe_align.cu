// Sorts the (token, slot) pairs of a mixture of experts by expert, in one launch by the blocks of a cluster
// (align.cuh). Each warp loads the ids of its slice to shared memory. A long slice is loaded in parts, in each of
// the two passes.
#include "kiln/copy_async.cuh"
#include "kiln/pdl.cuh"
#include "moe/align.cuh"

namespace kiln {

template <typename ID, int E, int BLOCK, bool LOCAL_ONLY, int THREADS, int CLUSTER, int CLUSTERS>
__global__ void __launch_bounds__(THREADS, 1)
    moe_align(i32* sorted_token_ids, i32* expert_ids, i32* num_tokens_post_padded, i32* inverse,
              const ID* topk_ids, i32 tokens, i32 k, i64 stride_ids, i32 capacity, const i32* expert_map) {
  constexpr int AHEAD = 8;  // ids of a lane that are loaded together and kept
  // [THREADS / 32][AHEAD][32] of ID: ids, one column per lane. Then the words of the sort.
  extern __shared__ __align__(8) i32 shared[];
  const Align<E, BLOCK, LOCAL_ONLY, THREADS, CLUSTER, CLUSTERS> align(
      shared + THREADS * AHEAD * (sizeof(ID) / 4), tokens * k);
  const int lane = align.lane;
  const i32 begin = align.begin, end = align.end;
  ID* const ids = reinterpret_cast<ID*>(shared) + align.warp * AHEAD * 32 + lane;

  struct Pair {
    i32 index, slot;
    i64 offset;
  };
  const u32 first_token = static_cast<u32>(begin + lane) / k, step_tokens = 32u / k;
  const i32 first_slot = begin + lane - first_token * k, step_slots = 32 - step_tokens * k;
  const Pair first = {begin + lane, first_slot, first_token * stride_ids + first_slot};
  const i64 step = step_tokens * stride_ids + step_slots;
  const bool kept = align.slice <= 32 * AHEAD;  // ids are loaded once
  // Begins to copy the ids of AHEAD pairs of this lane, 32 apart, and moves `at` past them.
  const auto load = [&](Pair& at) {
#pragma unroll 1
    for (int j = 0; j < AHEAD && at.index < end; ++j) {
      copy_async<1>(ids + 32 * j, topk_ids + at.offset);
      const bool carry = at.slot + step_slots >= k;
      at = {at.index + 32, at.slot + step_slots - (carry ? k : 0),
            at.offset + step + (carry ? stride_ids - k : 0)};
    }
  };

  if (!align.alone) cluster_arrive();
  pdl_launch_dependents();  // at once, because this kernel takes only a few SMs
  align.clear();
  __syncthreads();
  pdl_wait();
  Pair at = first;
  load(at);
  const Aligned to = {sorted_token_ids, expert_ids, num_tokens_post_padded, inverse, capacity, expert_map};
  align.fill(to);
  const auto id_of = [&](int pass, i32 round) {
    const int nth = ((round - begin) >> 5) & (AHEAD - 1);
    if (nth == 0) {
      if (!kept && (pass == 1 || round > begin)) load(at);
      copy_async_commit();
      copy_async_wait<0>();
    }
    return ids[32 * nth];
  };
  if constexpr (CLUSTERS > 1) {
    align.template count_outside<ID>(to, [&](i32 i) {
      const u32 token = static_cast<u32>(i) / k;
      return topk_ids[token * stride_ids + (i - token * k)];
    });
  }
  align.sort(to, id_of, [&] { at = first; });
}

}  // namespace kiln
