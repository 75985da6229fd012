// The chunks of a block of dplr_chunk or delta_chunk_mma, in the order in which the state meets them.
#pragma once
#include "dplr/memory.cuh"
#include "kiln/copy_async.cuh"
#include "recurrent/chunk/items.cuh"

namespace kiln {

// A chunk whose first token is `first`. Its sequence ends before token `end`.
struct DplrChunk {
  int head, slice, first, end;
};

// The chunks of a block's items from chunk `number` on, of which skip() leaves some out. Items without a state have no
// chunks. Few registers hold the place, because the preparation of a chunk needs most of them. BALANCED is that of ChunkItems;
// the warps that walk over the block's items must have the same.
template <int SLICES, bool SLOTS, bool BALANCED>
class DplrChunks {
 public:
  // REQUIRES: as ChunkItems.
  __device__ __forceinline__ DplrChunks(const ChunkSequences& in, int number)
      : items_(in, blockIdx.x, gridDim.x), heads_(in.value_heads) {
    if (items_.any()) take(number);
    settle();
  }
  __device__ __forceinline__ bool any() const { return items_.any(); }
  __device__ __forceinline__ DplrChunk now() const {
    const u32 item = items_.position();
    return {static_cast<int>(item / SLICES % heads_), static_cast<int>(item % SLICES), first_, end_};
  }
  __device__ __forceinline__ void skip(int chunks) {
    first_ += chunks * DPLR_TOKENS;
    settle();
  }

 private:
  // Goes to a chunk of the item, which may lie after its end.
  __device__ __forceinline__ void take(int number) {
    const ChunkItem item = items_.now();
    first_ = item.begin + number * DPLR_TOKENS;
    end_ = item.exists() ? item.end : item.begin;
  }
  __device__ __forceinline__ void settle() {
    while (items_.any() && first_ >= end_) {
      const int number = (first_ - end_) / DPLR_TOKENS;  // of the chunk after the item's last one
      items_.next();
      if (items_.any()) take(number);
    }
  }

  ChunkItems<SLICES, SLOTS, false, BALANCED> items_;
  const u32 heads_;
  int first_, end_;
};

// Prepares every PREPARERS-th chunk of the block, from chunk `own` on, for the warps that hold the state. A warp calls it.
// Chunk i has stage i % STAGES of `shared`. Its `empty` says that no other warp reads the stage, and its `ready` that the chunk is
// prepared. `preparation` has begin(), which begins the copies of a chunk, and make(), which needs them.
template <int PREPARERS, typename Shared, typename Preparation, typename Chunks>
__device__ __forceinline__ void prepare_chunks(Shared& shared, Preparation& preparation, Chunks chunks,
                                               int own) {
  constexpr int STAGES = Shared::STAGES;
#pragma unroll 1
  for (int chunk = own; chunks.any(); chunk += PREPARERS, chunks.skip(PREPARERS)) {
    const int stage = chunk % STAGES, turn = chunk / STAGES;
    if (turn > 0) shared.empty[stage].wait((turn - 1) % 2);
    preparation.begin(shared.stages[stage], chunks.now());
    copy_async_commit();
    copy_async_wait<0>();
    __syncwarp();
    preparation.make(shared.stages[stage]);
    if (threadIdx.x % 32 == 0) shared.ready[stage].arrive();
  }
}

}  // namespace kiln
