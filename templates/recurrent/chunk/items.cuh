// The items of a block of dplr_chunk or delta_chunk_mma, or of a cluster of delta_chunk, and the tokens of each.
#pragma once
#include "recurrent/chunk/order.cuh"
#include "recurrent/sequences.cuh"

namespace kiln {

// Some columns of a state, and the tokens [begin, end) of its sequence.
struct ChunkItem {
  int value_head, slice, begin, end;
  int slot;  // the place of the sequence's state; negative: the sequence has no state, and its outputs are zeros
  bool starts;  // the state begins as the slot has it, not with zeros

  __device__ __forceinline__ bool exists() const { return slot >= 0; }
};

// Where sequences are, and their states. With SLOTS, state_indices has the slot of each sequence's state, and
// has_initial_state is 0 for sequences that start from zeros, or null. Without, sequence n has slot n.
struct ChunkSequences {
  const i64* cu_seqlens;
  const i32* state_indices;
  const u8* has_initial_state;
  i32 tokens, sequences, value_heads;
  const ChunkOrder* order;  // with BALANCED; in shared memory
};

// The items of cluster `first` of `step` clusters: first, first + step, and so on. A state has SLICES items. Each thread has
// its own copy. With AHEAD the ends of the next item's sequence are read one item ahead, so that the thread does not wait
// for them. With BALANCED `in.order` says how many items the cluster has, and at which position each of its numbers is.
template <int SLICES, bool SLOTS, bool AHEAD, bool BALANCED = false>
class ChunkItems {
 public:
  // REQUIRES: pdl_wait() was called before, and the order is there.
  __device__ __forceinline__ ChunkItems(const ChunkSequences& in, u32 first, u32 step)
      : in_(in),
        length_(in.tokens / in.sequences),
        count_(BALANCED ? in.order->end : static_cast<u32>(in.sequences) * in.value_heads * SLICES),
        step_(step),
        item_(first) {
    if (AHEAD) read();
  }

  __device__ __forceinline__ u32 index() const { return item_; }
  __device__ __forceinline__ bool any() const { return item_ < count_; }
  __device__ __forceinline__ bool last() const { return item_ + step_ >= count_; }

  // Returns the item, and with AHEAD begins to read the ends of the next one. Call it once for each item.
  __device__ __forceinline__ ChunkItem now() {
    if (!AHEAD) read();
    const u32 at = position();
    const int state = static_cast<int>(at / SLICES), sequence = sequence_of(state);
    ChunkItem item;
    item.slice = static_cast<int>(at % SLICES);
    item.value_head = state % in_.value_heads;
    item.begin = in_.cu_seqlens ? begin_ : sequence * length_;
    item.end = in_.cu_seqlens ? end_ : item.begin + length_;
    item.slot = SLOTS ? slot_ : sequence;
    item.starts = !SLOTS || starts_;
    if (AHEAD) {
      item_ += step_;
      read();
      item_ -= step_;
    }
    return item;
  }
  __device__ __forceinline__ void next() { item_ += step_; }

  // The item's place among all items. Every SLICES neighbours belong to one state.
  __device__ __forceinline__ u32 position() const {
    if constexpr (BALANCED) return in_.order->position(item_);
    return item_;
  }

 private:
  __device__ __forceinline__ int sequence_of(int state) const {
    const int n = state / in_.value_heads;
    if constexpr (BALANCED) return in_.order->sequence(n);
    return n;
  }
  __device__ __forceinline__ void read() {
    if (!any()) return;
    const int sequence = sequence_of(static_cast<int>(position() / SLICES));
    if (in_.cu_seqlens) {
      begin_ = low_word(in_.cu_seqlens + sequence);
      end_ = low_word(in_.cu_seqlens + sequence + 1);
    }
    if constexpr (SLOTS) {
      slot_ = static_cast<i32>(load<1>(in_.state_indices + sequence).word[0]);
      starts_ = !in_.has_initial_state || load<1>(in_.has_initial_state + sequence).word[0] != 0;
    }
  }

  // Returns the value at p, which is below 2^31.
  __device__ static __forceinline__ i32 low_word(const i64* p) {
    return static_cast<i32>(load<1>(reinterpret_cast<const i32*>(p)).word[0]);
  }

  const ChunkSequences in_;
  const i32 length_;
  const u32 count_;  // the first number after all items
  const u32 step_;
  u32 item_;
  i32 begin_, end_, slot_;
  bool starts_;
};

}  // namespace kiln
