// Which items of dplr_chunk and delta_chunk_mma a block takes, so that all blocks have nearly the same work although sequences have
// different lengths.
//
// Take 128 sequences of 16 to 949 tokens with 16 heads and 132 blocks. An item's chunks of 16 tokens and its state take a block
// about as long as its chunks and four more. In this measure the block with the most work has 328, and the mean is 317.
#pragma once
#include "recurrent/sequences.cuh"

namespace kiln {

// The items of one block of `step` blocks. A block counts them as first, first + step, and so on below `end`. If sorted, each
// sequence has `per` neighbouring positions, one for each of its items. The numbers below `even` are positions, and the next
// numbers have the positions from `tail` on.
struct alignas(16) ChunkOrder {
  static constexpr int MOST = 512;  // sequences; more of them are not sorted, and their lengths even out
  u16 sequences[MOST];              // if sorted: those with the most chunks first
  u32 sorted;  // 0: the numbers are positions, and sequences have the order of their numbers
  u32 first, step, even, tail, end;

  // Memory that sort() needs until it returns.
  struct Scratch {
    alignas(16) u32 keys[MOST];
    u32 rounds[MOST];      // work of the first item of each round
    u32 before[MOST + 1];  // in sorted order: the work of all earlier sequences, with one item for each
    u32 taken;             // rounds that all blocks take
    u32 others, own;  // work that the blocks before this one take in these rounds, and that this one takes
    u32 range[2];     // the positions of the block after its rounds
  };

  // Gives block `block` of `blocks` every blocks-th item of `count`. One thread calls it, and a barrier follows.
  __device__ __forceinline__ void begin(u32 block, u32 blocks, u32 count) {
    sorted = 0;
    first = block;
    step = blocks;
    even = ~0u;
    end = count;
  }

  // Returns the position of item `number` of this block.
  __device__ __forceinline__ u32 position(u32 number) const {
    return sorted && number >= even ? tail + (number - even) / step : number;
  }
  // Returns the sequence whose items have the n-th `per` positions.
  __device__ __forceinline__ int sequence(int n) const { return sorted ? sequences[n] : n; }

  // True if sort() can even out the work. Sums of the work are below 2^28 then.
  __device__ __forceinline__ bool sorts(const i64* cu_seqlens, i32 tokens, int count, u32 per) const {
    return cu_seqlens && count <= MOST && end > step &&
           (static_cast<u64>(tokens) + count * 80) * per < 1u << 31;
  }

  // Sorts `count` sequences of `per` items each by their chunks of TOKENS tokens, and divides the items among the blocks:
  // - Items go to one block after the other in rounds, those with the most work first. A block has no less work than the next
  //   one then, so that the first block says how many rounds all of them can take.
  // - The items that are left fill up what each block lacks. Each block has a range of them.
  // REQUIRES: All threads of the block call it with the same arguments, after begin(), a barrier, and pdl_wait().
  // It is no inline function, because registers of the kernel's loops were spilled then.
  template <int TOKENS>
  __device__ __noinline__ void sort(const i64* cu_seqlens, int count, u32 per, Scratch& scratch) {
    write_keys<TOKENS>(cu_seqlens, count, scratch.keys);
    __syncthreads();
    for (int n = threadIdx.x; n < count; n += blockDim.x) place(n, count, scratch);
    __syncthreads();
    divide(Work{scratch.before, per, static_cast<u32>(count) * per}, scratch);
    __syncthreads();
  }

 private:
  // The work of items in sorted order.
  struct Work {
    const u32* before;
    u32 per, items;
    // Returns the work of the item at position p.
    __device__ __forceinline__ u32 at(u32 p) const { return before[p / per + 1] - before[p / per]; }
    // Returns the work of all items at earlier positions.
    __device__ __forceinline__ u32 up_to(u32 p) const {
      const u32 n = p / per, rest = p % per;
      return rest == 0 ? before[n] * per : before[n] * (per - rest) + before[n + 1] * rest;
    }
    // Returns the first position from `from` on whose item has its middle at or after the work `to`, counted from `from`.
    __device__ __forceinline__ u32 find(u32 from, u32 to) const {
      u32 low = from, high = items;
      to = 2 * (to + up_to(from));
      while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (2 * up_to(middle) + at(middle) < to)
          low = middle + 1;
        else
          high = middle;
      }
      return low;
    }
  };

  // A key has the work of an item, and below it a part that falls with the number of the sequence. The work is counted in chunks.
  // Loading and storing a state takes about as long as 64 tokens.
  template <int TOKENS>
  __device__ static __forceinline__ void write_keys(const i64* cu_seqlens, int count, u32* keys) {
    for (int n = threadIdx.x; n < (count + 3) / 4 * 4; n += blockDim.x) {
      keys[n] = 0;
      if (n >= count) continue;
      const i64 tokens = load_one(cu_seqlens + n + 1) - load_one(cu_seqlens + n);
      const i64 work = (tokens + TOKENS - 1) / TOKENS + 64 / TOKENS;
      keys[n] = static_cast<u32>(work < 0xffff ? work : 0xffff) << 16 | (MOST - n);
    }
  }

  // Puts sequence n at its place, after all sequences with larger keys.
  __device__ __forceinline__ void place(int n, int count, Scratch& scratch) {
    const u32 key = scratch.keys[n];
    u32 larger = 0, before = 0;
    const auto compare = [&](u32 other) {
      larger += other > key;
      before += other > key ? other >> 16 : 0;
    };
#pragma unroll 4
    for (int i = 0; i < count; i += 4) {
      const uint4 others = *reinterpret_cast<const uint4*>(scratch.keys + i);
      compare(others.x), compare(others.y), compare(others.z), compare(others.w);
    }
    sequences[larger] = n;
    scratch.before[larger] = before;
    if (larger == count - 1u) scratch.before[count] = before + (key >> 16);
  }

  // Divides the items. All threads of the block call it. Loops and atomics take the place of shuffles, because with these the
  // kernel that calls sort() spilled registers.
  __device__ __forceinline__ void divide(const Work& work, Scratch& scratch) {
    const u32 longest = work.at(0), mean = (work.up_to(work.items) + step - 1) / step;
    const u32 most = mean < longest ? longest : mean;  // work of a block
    const u32 full = work.items / step < MOST ? work.items / step : MOST;
    for (u32 n = threadIdx.x; n < full; n += blockDim.x) scratch.rounds[n] = work.at(n * step);
    if (threadIdx.x == 0) scratch.taken = scratch.others = scratch.own = 0;
    __syncthreads();
    for (u32 n = threadIdx.x; n < full; n += blockDim.x) {
      u32 sum = 0;  // work of the first block
#pragma unroll 4
      for (u32 i = 0; i <= n; ++i) sum += scratch.rounds[i];
      if (sum > most) continue;
      atomicAdd(&scratch.taken, 1);
      atomicAdd(&scratch.others, work.up_to(n * step + first) - work.up_to(n * step));
      atomicAdd(&scratch.own, work.at(n * step + first));
    }
    __syncthreads();
    const u32 rounds = scratch.taken;
    // The range begins at what all earlier blocks lack, and ends at what this one lacks, too.
    if (threadIdx.x < 2) {
      const u32 lacks = first * most - scratch.others + (threadIdx.x == 0 ? 0 : most - scratch.own);
      const bool all = threadIdx.x == 1 && first + 1 == step;
      scratch.range[threadIdx.x] = all ? work.items : work.find(rounds * step, lacks);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    sorted = 1;
    even = rounds * step;
    tail = scratch.range[0];
    end = first + (rounds + scratch.range[1] - tail) * step;
  }
};

}  // namespace kiln
