// Sorts the (token, slot) pairs of a mixture of experts by expert. Each expert's run is padded to whole blocks
// of a grouped GEMM. It is a stable counting sort by the blocks of one cluster, or of several clusters.
//
// Every warp has a slice of the pairs:
//1. The warp counts the pairs of its slice per expert.
//2. The counts become the warp's own first places, through three sums:
//   over the warps before it, over the blocks before its own, and over the padded experts before.
//3. The warp walks its slice again, in order, and hands out its places.
// A place therefore depends on the experts alone, and not on the speed or the number of warps.
//
// Clusters do not exchange counts, because that would need a workspace and clusters that run at the same time.
// Instead, each of several clusters also counts the pairs of all others, of which it needs only two numbers
// per expert: the pairs before its own, and the pairs after them.
#pragma once
#include "kiln/cluster.cuh"
#include "kiln/types.cuh"
#include "moe/scan.cuh"
#include "moe/select.cuh"

namespace kiln {

// The outputs of the sort, and what decides about them. The manifest of moe_align describes each.
struct Aligned {
  i32 *sorted_token_ids, *expert_ids, *num_tokens_post_padded, *inverse;
  i32 capacity;
  const i32* expert_map;
};

// The part of a thread in the sort of n pairs.
// REQUIRES: 1 to CLUSTER blocks, a power of two, in one cluster; more than one block needs sm_90. Or 2 to CLUSTERS
// clusters, a power of two, of CLUSTER blocks.
// REQUIRES: next_pow2(E) <= THREADS, which is a power of two.
template <int E, int BLOCK, bool LOCAL_ONLY, int THREADS, int CLUSTER, int CLUSTERS = 1>
struct Align {
  static constexpr int WARPS = THREADS / 32;
  // PARTS neighbouring threads share an expert's sums.
  static constexpr int PARTS = smaller(32, THREADS / next_pow2(E));
  static constexpr int PITCH = E | 1;  // odd: the parts of an expert are in different banks
  // The number of i32 of shared memory.
  static constexpr int WORDS = WARPS * PITCH + CLUSTER * E + E + 33 + (CLUSTERS > 1 ? 2 * CLUSTER * E : 0);

  // [WARPS][PITCH]: the number of pairs of a warp; later the warp's next place after base[].
  i32* const counts;
  i32* const totals = counts + WARPS * PITCH;  // [CLUSTER][E]: pairs of a block
  i32* const base = totals + CLUSTER * E;      // [E]: first place of this block's pairs
  i32* const used_places = base + E;           // [1]
  i32* const partial = used_places + 1;        // [32]
  // CLUSTERS > 1, [2][CLUSTER][E]: pairs before and after the pairs of the cluster, as each of its blocks counted.
  i32* const outside = partial + 32;

  // The warp's number is read through a shuffle, so that the compiler knows that all lanes have the same
  // number. The bounds of the warp's loops are then known to be the same, too. Otherwise each ballot in them
  // comes with code for lanes that arrive apart, a quarter of the kernel.
  const int thread = threadIdx.x, lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const int expert = thread / PARTS, part = thread % PARTS;
  const int all_blocks = CLUSTER * CLUSTERS > 1 ? gridDim.x : 1;
  const int number = CLUSTER * CLUSTERS > 1 ? blockIdx.x : 0;  // of this block, in all clusters
  const int blocks = CLUSTERS > 1 ? smaller(all_blocks, CLUSTER) : all_blocks;  // of the cluster
  const int rank = CLUSTERS > 1 ? number % CLUSTER : number;  // of this block in the cluster
  const bool alone = CLUSTER == 1 || blocks == 1;
  const int all_threads = all_blocks * THREADS;  // a power of two
  const i32 n, slice = 32 * larger(1, (n + all_threads - 1) >> (31 - __clz(all_threads)));
  const i32 begin = smaller(n, (number * WARPS + warp) * slice), end = smaller(n, begin + slice);
  // The number of this block's warps that have pairs.
  const int with_pairs =
      __popc(__ballot_sync(0xffffffffu, lane < WARPS && (number * WARPS + lane) * slice < n));

  // `shared` has WORDS elements. All threads call it.
  __device__ __forceinline__ Align(i32* shared, i32 n) : counts(shared), n(n) {}

  // The first step, which touches no global memory. The caller goes on with a barrier of the block.
  __device__ __forceinline__ void clear() const {
#pragma unroll 1
    for (int i = thread; i < with_pairs * PITCH; i += THREADS) counts[i] = 0;
    if constexpr (CLUSTERS > 1) {
      for (int e = thread; e < 2 * E; e += THREADS) outside[(e / E * CLUSTER + rank) * E + e % E] = 0;
    }
  }

  // Fills sorted_token_ids with pads. sort() stores pairs over them, after a barrier of all blocks. There is no
  // such barrier for several clusters, so sort() stores their pads.
  __device__ __forceinline__ void fill(const Aligned& to) const {
    if constexpr (CLUSTERS == 1) {
#pragma unroll 1
      for (i32 i = number * THREADS + thread; i < to.capacity; i += all_threads) to.sorted_token_ids[i] = n;
    }
  }

  // Says whether pairs with the id `found` have places.
  template <typename ID>
  __device__ __forceinline__ static bool placed(ID found, const Aligned& to) {
    return found >= 0 && found < E && (!LOCAL_ONLY || to.expert_map[found] >= 0);
  }

  // Counts this warp's share of the pairs outside the cluster, whose ids are id_at(pair). Comes before sort().
  template <typename ID, typename IdAt>
  __device__ __forceinline__ void count_outside(const Aligned& to, const IdAt& id_at) const {
    constexpr int AHEAD = 8;  // ids of a lane that are loaded together
    const i32 first = smaller(n, (number - rank) * WARPS * slice),
              last = smaller(n, first + blocks * WARPS * slice), step = blocks * THREADS;
    i32* const before = outside + rank * E;
#pragma unroll 1
    for (i32 i = rank * THREADS + thread; i < n; i += AHEAD * step) {
      ID found[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; ++j) {
        const i32 at = i + j * step;
        found[j] = at < first || (at >= last && at < n) ? id_at(at) : static_cast<ID>(-1);
      }
#pragma unroll
      for (int j = 0; j < AHEAD; ++j) {
        if (placed(found[j], to)) atomicAdd(before + (i + j * step < first ? 0 : CLUSTER * E) + found[j], 1);
      }
    }
  }

  // Sorts. id_of(pass, round) returns the expert of the pair round + lane, and anything after the last pair. Each
  // of the passes 0 and 1 calls it for every 32 pairs of the warp's slice, in order. restart() is called between
  // the passes.
  // REQUIRES: clear() came before, then a barrier of the block. With more than one block, all threads have called
  // cluster_arrive(), and not yet cluster_wait(). fill() came before, too.
  template <typename Ids, typename Restart>
  __device__ __forceinline__ void sort(const Aligned& to, const Ids& id_of, const Restart& restart) const {
    i32* const own = counts + warp * PITCH;
    const i32 local = to.expert_map && expert < E ? to.expert_map[expert] : expert;

    // The first pass over the pairs counts them. The second pass places them, once all sums are known.
    // Of this thread's expert: its first place, the number of its places, and the number of its pairs.
    i32 place = 0, padded = 0, pairs_of_expert = 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
#pragma unroll 1
      for (i32 round = begin; round < end; round += 32) {
        const i32 i = round + lane;
        const auto found = id_of(pass, round);
        const i32 mine = i < end && placed(found, to) ? static_cast<i32>(found) : -1;  // -1: it is left out
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
        const i32 at = mine >= 0 ? base[mine] + next + earlier : -1;
        if (mine >= 0) to.sorted_token_ids[at] = i;
        if (i < end) to.inverse[i] = at;
      }
      if (pass == 1) break;
      restart();
      __syncthreads();

      // The sums run over the warps of this block, then over the blocks, then over the experts. PARTS threads
      // share an expert.
      const int rows = (with_pairs + PARTS - 1) / PARTS, top = part * rows,
                bottom = expert < E ? smaller(with_pairs, top + rows) : top;
      i32 count = 0;
#pragma unroll 1
      for (int i = top; i < bottom; ++i) count += counts[i * PITCH + expert];
      const i32 up_to = warp_inclusive_sum<PARTS>(count),
                in_block = __shfl_sync(0xffffffffu, up_to, PARTS - 1, PARTS);
      if (!alone) {
        cluster_wait();  // every block of the cluster runs, so its shared memory may be written
#pragma unroll 1
        for (int b = part; b < blocks && expert < E; b += PARTS) {
          cluster_store(totals + rank * E + expert, b, in_block);
          if constexpr (CLUSTERS > 1) {
            for (int row = rank; row < 2 * CLUSTER; row += CLUSTER)
              cluster_store(outside + row * E + expert, b, outside[row * E + expert]);
          }
        }
        cluster_arrive();
      }
      i32 next = up_to - count;
#pragma unroll 1
      for (int i = top; i < bottom; ++i) {
        const i32 pairs = counts[i * PITCH + expert];
        counts[i * PITCH + expert] = next;
        next += pairs;
      }
      i32 before = 0, all = in_block;  // pairs of the expert in the blocks before, and in all blocks
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
      if constexpr (CLUSTERS > 1) {
        for (int b = 0; b < blocks && expert < E; ++b) {
          before += outside[b * E + expert];
          all += outside[b * E + expert] + outside[(CLUSTER + b) * E + expert];
        }
      }
      pairs_of_expert = all;
      padded = (all + BLOCK - 1) / BLOCK * BLOCK;
      place = block_exclusive_sum<THREADS>(part == 0 ? padded : 0, partial) - (part == 0 ? 0 : padded);
      if (part == 0 && expert < E) base[expert] = place + before;
      if (part == 0 && expert == E - 1) {
        *used_places = place + padded;
        if (number == 0) *to.num_tokens_post_padded = place + padded;
      }
      __syncthreads();
    }

    // Each block of the grouped GEMM gets its expert; blocks after the last one in use get -1.
    const int own_part = number * PARTS + part, own_thread = number * THREADS + thread;
#pragma unroll 1
    for (i32 i = place / BLOCK + own_part; i < (place + padded) / BLOCK; i += all_blocks * PARTS)
      to.expert_ids[i] = local;
#pragma unroll 1
    for (i32 i = *used_places / BLOCK + own_thread; i < to.capacity / BLOCK; i += all_threads)
      to.expert_ids[i] = -1;
    if constexpr (CLUSTERS > 1) {
      for (i32 i = place + pairs_of_expert + own_part; i < place + padded; i += all_blocks * PARTS)
        to.sorted_token_ids[i] = n;
      for (i32 i = *used_places + own_thread; i < to.capacity; i += all_threads) to.sorted_token_ids[i] = n;
    }
  }
};

}  // namespace kiln
