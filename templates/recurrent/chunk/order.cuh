// Sorts sequences by length, for dplr_chunk.
//
// ChunkItems then gives all blocks nearly the same work. For 128 sequences of 16 to 949 tokens with 16 heads, the one of 132
// blocks with the most chunks of 16 tokens has 277 of them. It has 347 where sequences are not sorted; the mean is 255.
#pragma once
#include "recurrent/sequences.cuh"

namespace kiln {

// The numbers of all sequences, those with the most chunks first. It lies in shared memory.
struct ChunkOrder {
  static constexpr int MOST = 512;  // sequences; more of them are not sorted, and their lengths even out
  u16 sequences[MOST];
  u32 sorted;  // 0: sequences have the order of their numbers

  // Sorts `count` sequences by their chunks of TOKENS tokens, unless they are too many. REQUIRES:
  // - All threads of the block call it with the same arguments, after pdl_wait().
  // - `keys` has MOST elements of shared memory, aligned to 16 bytes, which are free again at the end.
  // It is no inline function, because registers of the kernel's loops were spilled then.
  template <int TOKENS>
  __device__ __noinline__ void sort(const i64* cu_seqlens, int count, u32* keys) {
    const bool sorts = count <= MOST;
    if (threadIdx.x == 0) sorted = sorts;
    if (sorts) {
      write_keys<TOKENS>(cu_seqlens, count, keys);
      __syncthreads();
      for (int n = threadIdx.x; n < count; n += blockDim.x) sequences[place_of(keys[n], count, keys)] = n;
    }
    __syncthreads();
  }

 private:
  // A key has the number of chunks, and below it a part that falls with the number of the sequence.
  template <int TOKENS>
  __device__ static __forceinline__ void write_keys(const i64* cu_seqlens, int count, u32* keys) {
    for (int n = threadIdx.x; n < (count + 3) / 4 * 4; n += blockDim.x) {
      keys[n] = 0;
      if (n >= count) continue;
      const i64 chunks = (load_one(cu_seqlens + n + 1) - load_one(cu_seqlens + n) + TOKENS - 1) / TOKENS;
      keys[n] = static_cast<u32>(chunks < 0xffff ? chunks : 0xffff) << 16 | (MOST - n);
    }
  }
  // Returns the number of keys that are larger.
  __device__ static __forceinline__ int place_of(u32 key, int count, const u32* keys) {
    int place = 0;
#pragma unroll 4
    for (int i = 0; i < count; i += 4) {
      const uint4 other = *reinterpret_cast<const uint4*>(keys + i);
      place += (other.x > key) + (other.y > key) + (other.z > key) + (other.w > key);
    }
    return place;
  }
};

}  // namespace kiln
