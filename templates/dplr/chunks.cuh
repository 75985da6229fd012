// The chunks of a block of dplr_chunk, in the order in which the state meets them.
#pragma once
#include "dplr/memory.cuh"
#include "recurrent/chunk/items.cuh"

namespace kiln {

// The tokens [first, end) of an item, from a chunk's first token on.
struct DplrChunk {
  int head, slice, first, end;
};

// Every PREPARERS-th chunk of a block's items, from chunk `number` on. Items without a state have no chunks.
template <int SLICES, bool SLOTS>
class DplrChunks {
 public:
  // REQUIRES: pdl_wait() was called before.
  __device__ __forceinline__ DplrChunks(const ChunkSequences& in, int number) : items_(in), number_(number) {
    if (items_.any()) take();
    settle();
  }
  __device__ __forceinline__ bool any() const { return items_.any(); }
  __device__ __forceinline__ DplrChunk now() const {
    return {item_.value_head, item_.slice, item_.begin + number_ * DPLR_TOKENS, item_.end};
  }
  __device__ __forceinline__ void skip(int chunks) {
    number_ += chunks;
    settle();
  }

 private:
  __device__ __forceinline__ void take() {
    item_ = items_.now();
    count_ = item_.exists() ? (item_.end - item_.begin + DPLR_TOKENS - 1) / DPLR_TOKENS : 0;
  }
  __device__ __forceinline__ void settle() {
    while (items_.any() && number_ >= count_) {
      number_ -= count_;
      items_.next();
      if (items_.any()) take();
    }
  }

  ChunkItems<SLICES, SLOTS, false> items_;
  ChunkItem item_;
  int number_, count_ = 0;  // of the chunk in its item; chunks of the item
};

}  // namespace kiln
