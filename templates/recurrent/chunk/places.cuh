// The chunks of the items of a cluster of delta_chunk, and who prepares each.
#pragma once
#include "recurrent/chunk/items.cuh"
#include "recurrent/chunk/memory.cuh"

namespace kiln {

// The warpgroup that prepares a chunk, for the chunks of a cluster one after the other. Blocks `first` to `blocks` - 1 prepare.
// Neighbouring chunks go to different blocks.
template <int GROUPS>
class ChunkTurn {
 public:
  __device__ __forceinline__ ChunkTurn(int first, int blocks) : first_(first), blocks_(blocks) {}
  __device__ __forceinline__ int rank() const { return rank_; }
  __device__ __forceinline__ int group() const { return group_; }
  __device__ __forceinline__ void next() {
    if (++rank_ < blocks_) return;
    rank_ = first_;
    group_ = (group_ + 1) % GROUPS;
  }

 private:
  const int first_, blocks_;
  int rank_ = first_, group_ = 0;
};

// A chunk of a cluster's items.
struct ChunkPlace {
  u32 index;  // of the item
  int first;  // the chunk's first token, or -1 after the last chunk
  ChunkItem item;
};

// Returns the chunk that comes `chunks` chunks after the first one of item `place.index`, or after `place` itself if that is
// a chunk. Items that do not exist have no chunks.
template <int SLICES, bool SLOTS>
__device__ __forceinline__ ChunkPlace chunk_after(ChunkPlace place, int chunks, const ChunkSequences& in,
                                                  u32 step) {
  ChunkItems<SLICES, SLOTS, false> items(in, place.index, step);
#pragma unroll 1
  for (; items.any(); items.next(), place.first = -1) {
    if (place.first < 0) {
      place.item = items.now();
      place.first = place.item.begin;
    }
    const int left = place.item.exists() ? (place.item.end - place.first + CHUNK - 1) / CHUNK : 0;
    if (chunks < left) break;
    chunks -= left;
  }
  place.index = items.index();
  if (place.first >= 0) place.first += chunks * CHUNK;
  return place;
}

}  // namespace kiln
