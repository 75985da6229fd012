// Reads and writes so many bytes in 16-byte accesses and does nothing else: the floor that a memory-bound kernel is measured against.
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// Block b's first vector of v, of which the larger of reads and writes gives each block SPAN and the smaller one is spread evenly:
// so the mix is the same at any time, and no block has more than SPAN of either.
template <u32 SPAN>
__device__ __forceinline__ u32 first_vector(u32 v, u32 largest, u32 b) {
  if (v == largest) return min(v, b * SPAN);
  return v / gridDim.x * b + min(v % gridDim.x, b);
}

// REQUIRES: gridDim.x = ceil(max(reads, writes) / SPAN), SPAN = THREADS * UNROLL; fewer than 2^32 vectors of 16 bytes less SPAN (64 GiB).
// A thread has UNROLL loads in flight, and what it writes depends on all it read, as in a real kernel. The last 0 to 15 bytes are left alone.
template <int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS, resident_blocks(THREADS))
    stream(const u8* src, u8* dst, i64 read_bytes, i64 write_bytes) {
  constexpr u32 SPAN = THREADS * UNROLL;
  const u32 reads = static_cast<u32>(read_bytes / 16), writes = static_cast<u32>(write_bytes / 16),
            largest = max(reads, writes);
  const u32 read = first_vector<SPAN>(reads, largest, blockIdx.x) + threadIdx.x,
            read_end = first_vector<SPAN>(reads, largest, blockIdx.x + 1);
  const u32 write = first_vector<SPAN>(writes, largest, blockIdx.x) + threadIdx.x,
            write_end = first_vector<SPAN>(writes, largest, blockIdx.x + 1);

  pdl_wait();
  Vec<u32, 4> value[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (read + i * THREADS < read_end)
      value[i] = load<4>(reinterpret_cast<const u32*>(src) + 4ull * (read + i * THREADS));
  }
  pdl_launch_dependents();
  Vec<u32, 4> all;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) all.word[j] ^= value[i].word[j];
  }
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (write + i * THREADS < write_end)
      store(reinterpret_cast<u32*>(dst) + 4ull * (write + i * THREADS), all);
  }
  // A load that nothing depends on would be removed. Random data meet this once in 2^128.
  if (all.word[0] == 0x9e3779b9u && all.word[1] == 0x7f4a7c15u && all.word[2] == 0xbf58476du &&
      all.word[3] == 0x1ce4e5b9u && writes == 0)
    dst[0] = 1;
}

}  // namespace kiln
