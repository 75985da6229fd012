// Sorts the (token, slot) pairs of a mixture of experts by expert, each expert's run padded to whole blocks of a grouped GEMM: a stable
// counting sort in one launch, by the blocks of one cluster.
//
// Every warp has a slice of the flattened ids. It counts them per expert; sums over the warps before it, over the blocks before its own and
// over the padded experts before turn counts into the warp's own places; then it walks its slice again, in order, and hands them out. So a
// place depends on the ids alone: neither on which warp is faster nor on how many there are.
#include "kiln/cluster.cuh"
#include "kiln/pdl.cuh"
#include "kiln/scan.cuh"
#include "kiln/select.cuh"
#include "kiln/types.cuh"

namespace kiln {

// A launch of one block, or of at most CLUSTER in one cluster, which needs sm_90.
template <typename ID, int E, int BLOCK, bool LOCAL_ONLY, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS, 1)
    moe_align(i32* sorted_token_ids, i32* expert_ids, i32* num_tokens_post_padded, i32* inverse, const ID* topk_ids, i32 tokens, i32 k, i64 stride_ids, i32 capacity, const i32* expert_map) {
  constexpr int WARPS = THREADS / 32;
  constexpr int AHEAD = 4;                                        // ids of a lane that are in flight together
  constexpr int PARTS = smaller(32, THREADS / next_pow2(E));      // neighbouring threads that share an expert's sums over warps
  constexpr int ROWS = static_cast<int>(ceil_div(WARPS, PARTS));  // warps of a part, at most
  constexpr int PITCH = E | 1;                                    // odd: the parts of an expert are in different banks
  extern __shared__ i32 counts[];                                 // [WARPS][PITCH]: ids of a warp; then its next place behind base[]
  i32* const totals = counts + WARPS * PITCH;                     // [CLUSTER][E]: ids of a block
  i32* const start = totals + CLUSTER * E;                        // [E + 1]: first place of an expert; at E the end of all
  i32* const base = start + E + 1;                                // [E]: first place of this block's ids
  i32* const partial = base + E;                                  // [32]

  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int blocks = CLUSTER > 1 ? gridDim.x : 1, rank = CLUSTER > 1 ? blockIdx.x : 0;
  const bool alone = blocks == 1;
  const i32 n = tokens * k, slice = 32 * larger(1, (n + blocks * THREADS - 1) / (blocks * THREADS));
  const i32 begin = smaller(n, (rank * WARPS + warp) * slice), end = smaller(n, begin + slice);
  const int with_ids = smaller(WARPS, larger(0, (n - rank * WARPS * slice + slice - 1) / slice));  // warps of this block that have any
  i32* const own = counts + warp * PITCH;

  struct Pair { i32 index, token, slot; };
  const Pair first = {begin + lane, (begin + lane) / k, (begin + lane) % k};
  const i32 step_tokens = 32 / k, step_slots = 32 % k;
  i32 id[AHEAD];
  // The expert of a pair; -1 for what is not to be sorted.
  const auto id_at = [&](const Pair& at) {
    const ID found = at.index < end ? topk_ids[at.token * stride_ids + at.slot] : -1;
    return found >= 0 && found < E && (!LOCAL_ONLY || expert_map[found] >= 0) ? static_cast<i32>(found) : -1;
  };
  const auto advance = [&](Pair& at) {  // by 32
    const bool carry = at.slot + step_slots >= k;
    at = {at.index + 32, at.token + step_tokens + carry, at.slot + step_slots - (carry ? k : 0)};
  };

  if (!alone) cluster_arrive();
  pdl_launch_dependents();  // at once: a few blocks of the GPU are all that is taken
#pragma unroll 1
  for (int i = thread; i < with_ids * PITCH; i += THREADS) counts[i] = 0;
  __syncthreads();
  pdl_wait();
  Pair at = first;
  i32 pad = rank * THREADS + thread;
#pragma unroll 1
  do {
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) {
      id[j] = id_at(at);
      advance(at);
    }
#pragma unroll 1
    for (; pad < capacity; pad += blocks * THREADS) sorted_token_ids[pad] = n;  // pads are what is not stored over; while the ids come
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) {
      if (id[j] >= 0) atomicAdd(own + id[j], 1);
    }
  } while (at.index - lane < end);
  __syncthreads();

  // Sums over the warps of this block, then over the blocks.
  const int expert = thread / PARTS, part = thread % PARTS, rows = (with_ids + PARTS - 1) / PARTS;
  const auto has = [&](int i) { return i < rows && part * rows + i < with_ids && expert < E; };
  i32* const column = counts + part * rows * PITCH + expert;
  i32 count = 0;
#pragma unroll 4
  for (int i = 0; i < ROWS; ++i) count += has(i) ? column[i * PITCH] : 0;
  const i32 up_to = warp_inclusive_sum<PARTS>(count), in_block = __shfl_sync(0xffffffffu, up_to, PARTS - 1, PARTS);
  if (!alone) cluster_wait();  // every block of the cluster runs: its shared memory may be written
#pragma unroll 1
  for (int b = part; b < blocks && expert < E; b += PARTS) {
    if (alone) {
      totals[expert] = in_block;
    } else {
      cluster_store(totals + rank * E + expert, b, in_block);
    }
  }
  if (!alone) cluster_arrive();
  i32 next = up_to - count;
#pragma unroll 2
  for (int i = 0; i < ROWS; ++i) {
    if (!has(i)) break;
    const i32 ids = column[i * PITCH];
    column[i * PITCH] = next;
    next += ids;
  }
  if (alone) {
    __syncthreads();
  } else {
    cluster_wait();
  }

  // Sums over the experts, of which each has one thread.
  i32 before = 0, all = 0;  // ids in blocks before, and in all
  if (thread < E) {
#pragma unroll 4
    for (int b = 0; b < CLUSTER; ++b) {
      const i32 there = b < blocks ? totals[b * E + thread] : 0;
      all += there;
      if (b < rank) before += there;
    }
  }
  const i32 padded = (all + BLOCK - 1) / BLOCK * BLOCK, place = block_exclusive_sum<E>(padded, partial);
  if (thread < E) start[thread] = place, base[thread] = place + before;
  if (thread == E - 1) start[E] = place + padded;
  if (thread == E - 1 && rank == 0) *num_tokens_post_padded = place + padded;
  __syncthreads();

  const bool kept = slice <= 32 * AHEAD;  // the ids are in registers still
  at = first;
  i32 coming = kept ? id[0] : id_at(at);
#pragma unroll 1
  for (i32 round = begin; round < end; round += 32) {
    const i32 mine = coming, i = round + lane;
#pragma unroll
    for (int j = 1; j < AHEAD; ++j) id[j - 1] = id[j];
    advance(at);
    coming = kept ? id[0] : id_at(at);  // on its way while this one is placed
    const u32 same_expert = lanes_with_same<E>(mine);
    const int earlier = __popc(same_expert & ((1u << lane) - 1));
    const i32 next = mine >= 0 ? own[mine] : 0;
    __syncwarp();
    if (mine >= 0 && earlier == 0) own[mine] = next + __popc(same_expert);
    __syncwarp();
    const i32 to = mine >= 0 ? base[mine] + next + earlier : -1;
    if (mine >= 0) sorted_token_ids[to] = i;
    if (i < end) inverse[i] = to;
  }

  // The expert of each block of the grouped GEMM, by bisection; from the last thread on, whose warp may have had no ids to place.
  const i32 end_of_all = start[E];
#pragma unroll 1
  for (i32 i = (blocks - rank) * THREADS - 1 - thread; i < capacity / BLOCK; i += blocks * THREADS) {
    int low = 0, high = E;  // the last expert that starts at or before it: those without ids end where they start
#pragma unroll 1
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (start[middle] <= i * BLOCK ? low : high) = middle;
    }
    expert_ids[i] = i * BLOCK >= end_of_all ? -1 : expert_map ? expert_map[low] : low;
  }
}

}  // namespace kiln
