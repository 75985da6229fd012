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
  const ChunkOrder* order;  // with BALANCED and cu_seqlens
};

// The items of cluster `first` of `step` clusters: first, first + step, and so on. A state has SLICES items. Each thread has
// its own copy. With AHEAD the ends of the next item's sequence are read one item ahead, so that the thread does not wait
// for them. With BALANCED the items lie in the order of `in.order`, and in every other round of `step` items the last cluster
// has the first one, which evens out work that falls from item to item.
template <int SLICES, bool SLOTS, bool AHEAD, bool BALANCED = false>
class ChunkItems {
 public:
  // REQUIRES: pdl_wait() was called before.
  __device__ __forceinline__ ChunkItems(const ChunkSequences& in, u32 first, u32 step)
      : in_(in),
        length_(in.tokens / in.sequences),
        count_(static_cast<u32>(in.sequences) * in.value_heads * SLICES),
        step_(BALANCED ? 2 * (step - first) - 1 : step),
        steps_(2 * step),
        item_(first) {
    if (AHEAD) read();
  }

  __device__ __forceinline__ u32 index() const { return item_; }
  __device__ __forceinline__ bool any() const { return item_ < count_; }
  __device__ __forceinline__ bool last() const { return item_ + step_ >= count_; }

  // Returns the item, and with AHEAD begins to read the ends of the next one. Call it once for each item.
  __device__ __forceinline__ ChunkItem now() {
    if (!AHEAD) read();
    const int state = static_cast<int>(item_ / SLICES), sequence = sequence_of(state);
    ChunkItem item;
    item.slice = static_cast<int>(item_ % SLICES);
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
  __device__ __forceinline__ void next() {
    item_ += step_;
    if (BALANCED) step_ = steps_ - step_;
  }

 private:
  __device__ __forceinline__ int sequence_of(int state) const {
    const int n = state / in_.value_heads;
    if constexpr (BALANCED) {
      if (in_.cu_seqlens && in_.order->sorted) return in_.order->sequences[n];
    }
    return n;
  }
  __device__ __forceinline__ void read() {
    if (!any()) return;
    const int sequence = sequence_of(static_cast<int>(item_ / SLICES));
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
  const u32 count_;
  u32 step_;         // to the next item
  const u32 steps_;  // of two neighbouring rounds
  u32 item_;
  i32 begin_, end_, slot_;
  bool starts_;
};

}  // namespace kiln
