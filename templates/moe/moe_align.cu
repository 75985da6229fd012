// Sorts the (token, slot) pairs of a mixture of experts by expert. Each expert's run is padded to whole
// blocks of a grouped GEMM. The kernel is a stable counting sort in one launch, by the blocks of one cluster.
//
// Every warp has a slice of the flattened ids:
//1. The warp counts the ids of its slice per expert.
//2. The counts become the warp's own first places, through three sums:
//   over the warps before it, over the blocks before its own, and over the padded experts before.
//3. The warp walks its slice again, in order, and hands out its places.
// A place therefore depends on the ids alone, and not on the speed or the number of warps.
#include "kiln/cluster.cuh"
#include "kiln/copy_async.cuh"
#include "kiln/pdl.cuh"
#include "kiln/types.cuh"
#include "moe/scan.cuh"
#include "moe/select.cuh"

namespace kiln {

// REQUIRES: 1 to CLUSTER blocks, a power of two, in one cluster; more than one block needs sm_90.
// REQUIRES: next_pow2(E) <= THREADS, which is a power of two.
template <typename ID, int E, int BLOCK, bool LOCAL_ONLY, int THREADS, int CLUSTER>
__global__ void __launch_bounds__(THREADS, 1)
    moe_align(i32* sorted_token_ids, i32* expert_ids, i32* num_tokens_post_padded, i32* inverse,
              const ID* topk_ids, i32 tokens, i32 k, i64 stride_ids, i32 capacity, const i32* expert_map) {
  constexpr int WARPS = THREADS / 32;
  constexpr int AHEAD = 8;  // ids of a lane that are loaded together and kept
  // PARTS neighbouring threads share an expert's sums.
  constexpr int PARTS = smaller(32, THREADS / next_pow2(E));
  constexpr int PITCH = E | 1;                  // odd: the parts of an expert are in different banks
  extern __shared__ __align__(8) i32 shared[];  // [WARPS][AHEAD][32] of ID: ids, one column per lane
  // [WARPS][PITCH]: the number of ids of a warp; later the warp's next place after base[].
  i32* const counts = shared + THREADS * AHEAD * (sizeof(ID) / 4);
  i32* const totals = counts + WARPS * PITCH;  // [CLUSTER][E]: ids of a block
  i32* const base = totals + CLUSTER * E;      // [E]: first place of this block's ids
  i32* const used_places = base + E;           // [1]
  i32* const partial = used_places + 1;        // [32]

  // The warp's number is read through a shuffle, so that the compiler knows that all lanes have the same
  // number. The bounds of the warp's loops are then known to be the same, too. Otherwise each ballot in them
  // comes with code for lanes that arrive apart, a quarter of the kernel.
  const int thread = threadIdx.x, lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const int expert = thread / PARTS, part = thread % PARTS;
  const int blocks = CLUSTER > 1 ? gridDim.x : 1, rank = CLUSTER > 1 ? blockIdx.x : 0;
  const bool alone = blocks == 1;
  const int all_threads = blocks * THREADS;  // a power of two
  const i32 n = tokens * k, slice = 32 * larger(1, (n + all_threads - 1) >> (31 - __clz(all_threads)));
  const i32 begin = smaller(n, (rank * WARPS + warp) * slice), end = smaller(n, begin + slice);
  // The number of this block's warps that have ids.
  const int with_ids = __popc(__ballot_sync(0xffffffffu, lane < WARPS && (rank * WARPS + lane) * slice < n));
  ID* const ids = reinterpret_cast<ID*>(shared) + warp * AHEAD * 32 + lane;
  i32* const own = counts + warp * PITCH;

  struct Pair {
    i32 index, slot;
    i64 offset;
  };
  const u32 first_token = static_cast<u32>(begin + lane) / k, step_tokens = 32u / k;
  const i32 first_slot = begin + lane - first_token * k, step_slots = 32 - step_tokens * k;
  const Pair first = {begin + lane, first_slot, first_token * stride_ids + first_slot};
  const i64 step = step_tokens * stride_ids + step_slots;
  const bool kept = slice <= 32 * AHEAD;  // ids are loaded once
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

  if (!alone) cluster_arrive();
  pdl_launch_dependents();  // at once, because this kernel takes only a few SMs
#pragma unroll 1
  for (int i = thread; i < with_ids * PITCH; i += THREADS) counts[i] = 0;
  __syncthreads();
  pdl_wait();
  Pair at = first;
  load(at);
  const i32 local = expert_map && expert < E ? expert_map[expert] : expert;
#pragma unroll 1
  for (i32 i = rank * THREADS + thread; i < capacity; i += blocks * THREADS)
    sorted_token_ids[i] = n;  // a pad, unless a pair is stored over it after the barriers below

  // The first pass over the ids counts them. The second pass places them, once all sums are known.
  i32 place = 0, padded = 0;  // of this thread's expert: its first place, and the number of its places
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
#pragma unroll 1
    for (i32 round = begin; round < end; round += 32) {
      const int nth = ((round - begin) >> 5) & (AHEAD - 1);
      if (nth == 0) {
        if (!kept && (pass == 1 || round > begin)) load(at);
        copy_async_commit();
        copy_async_wait<0>();
      }
      const i32 i = round + lane;
      const ID found = ids[32 * nth];
      const i32 mine = i < end && found >= 0 && found < E && (!LOCAL_ONLY || expert_map[found] >= 0)
                           ? static_cast<i32>(found)
                           : -1;  // -1: the pair is left out
      if (pass == 0) {
        if (mine >= 0) atomicAdd(own + mine, 1);
        continue;
      }
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
    if (pass == 1) break;
    at = first;
    __syncthreads();

    // The sums run over the warps of this block, then over the blocks, then over the experts. PARTS threads
    // share an expert.
    const int rows = (with_ids + PARTS - 1) / PARTS, top = part * rows,
              bottom = expert < E ? smaller(with_ids, top + rows) : top;
    i32 count = 0;
#pragma unroll 1
    for (int i = top; i < bottom; ++i) count += counts[i * PITCH + expert];
    const i32 up_to = warp_inclusive_sum<PARTS>(count),
              in_block = __shfl_sync(0xffffffffu, up_to, PARTS - 1, PARTS);
    if (!alone) {
      cluster_wait();  // every block of the cluster runs, so its shared memory may be written
#pragma unroll 1
      for (int b = part; b < blocks && expert < E; b += PARTS)
        cluster_store(totals + rank * E + expert, b, in_block);
      cluster_arrive();
    }
    i32 next = up_to - count;
#pragma unroll 1
    for (int i = top; i < bottom; ++i) {
      const i32 ids = counts[i * PITCH + expert];
      counts[i * PITCH + expert] = next;
      next += ids;
    }
    i32 before = 0, all = in_block;  // ids of the expert in the blocks before, and in all blocks
    if (!alone) {
      cluster_wait();
      all = 0;
#pragma unroll 1
      for (int b = 0; b < blocks; ++b) {
        const i32 there = expert < E ? totals[b * E + expert] : 0;
        all += there;
        if (b < rank) before += there;
      }
    }
    padded = (all + BLOCK - 1) / BLOCK * BLOCK;
    place = block_exclusive_sum<THREADS>(part == 0 ? padded : 0, partial) - (part == 0 ? 0 : padded);
    if (part == 0 && expert < E) base[expert] = place + before;
    if (part == 0 && expert == E - 1) {
      *used_places = place + padded;
      if (rank == 0) *num_tokens_post_padded = place + padded;
    }
    __syncthreads();
  }

  // Each block of the grouped GEMM gets its expert; blocks after the last one in use get -1.
#pragma unroll 1
  for (i32 i = place / BLOCK + rank * PARTS + part; i < (place + padded) / BLOCK; i += blocks * PARTS)
    expert_ids[i] = local;
#pragma unroll 1
  for (i32 i = *used_places / BLOCK + rank * THREADS + thread; i < capacity / BLOCK; i += blocks * THREADS)
    expert_ids[i] = -1;
}

}  // namespace kiln
