// Reads and writes given numbers of bytes in 16-byte accesses, and does nothing else. Its time is the floor
// against which a memory-bound kernel is measured.
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// Returns the index of block b's first vector, if all blocks together read or write v vectors. `largest` is
// the larger of the numbers of reads and writes: each block has up to SPAN of these vectors. The vectors of
// the smaller number are spread evenly. The mix is therefore the same at any time, and no block has more than
// SPAN reads or SPAN writes.
template <u32 SPAN>
__device__ __forceinline__ u32 first_vector(u32 v, u32 largest, u32 b) {
  if (v == largest) return min(v, b * SPAN);
  return v / gridDim.x * b + min(v % gridDim.x, b);
}

// Reads and writes are counted in vectors of 16 bytes, and SPAN = THREADS * UNROLL.
// REQUIRES: gridDim.x = ceil(max(reads, writes) / SPAN); max(reads, writes) < 2^32 - SPAN (64 GiB).
// A thread has UNROLL loads in flight, and its stores depend on all of its loads, as in a real kernel.
// The last 0 to 15 bytes are left alone.
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
  // The compiler would remove a load on which nothing depends. Random data meet this condition once in 2^128.
  if (all.word[0] == 0x9e3779b9u && all.word[1] == 0x7f4a7c15u && all.word[2] == 0xbf58476du &&
      all.word[3] == 0x1ce4e5b9u && writes == 0)
    dst[0] = 1;
}

}  // namespace kiln
