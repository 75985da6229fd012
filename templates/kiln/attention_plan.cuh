// The plan of an attention launch, as kiln_kernel_attention_plan() writes it: what each block of a fixed grid has to do, whatever the lengths are.
//
// Rows are packed: row r of a request and kv head is its token r / GROUP and q head kv_head * GROUP + r % GROUP. A tile is TILE_ROWS of them with
// the kv tokens that their masks leave. The tiles follow each other by request, kv head, row; workers, which are the blocks of the grid, have
// equal shares of that line, so that a worker has whole tiles and at most one part of a tile at either end of its share. A whole tile is written at
// once; a part goes to a slot of the workspace, and the worker that comes last of a tile merges its slots, in their order: runs give the same bits.
//
// Where a kernel has spare items, the workers' shares are only the first part of a long line. The items of the rest have no worker: blocks take them
// one by one, in their order, as they get free (take()). Slots and merges know nothing of who took what.
//
// Words (i32) of the plan; where a kernel finds things depends on the limits alone, so that a captured graph takes the next plan out of the same buffer:
//   [0, 16)       header (AttentionHeader)
//   [16, 16 + a)  first item of each worker, and the first spare one's; a = workers + 1, rounded up to 4
//   b words       counters, 0 before and after a launch: counter i is of arrivals at the tile whose first slot is 2i or 2i + 1, the last one of spare
//                 items that were taken; b = workers * (1 + spare) + 1, rounded up to 4
//   then          items (AttentionItem); behind the last one, at header.requests_at, the requests (AttentionRequest)
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

struct AttentionHeader {
  i32 made_for;     // what the kernel fixes, in a word: attention_made_for()
  i32 workers;      // of the limits; those behind the last item have none
  i32 kv_heads;
  i32 window_left;  // -1: none
  i32 requests;     // of this plan
  i32 tokens;       // of q, of all requests
  i32 items;
  i32 slots;        // used, at most 2 * workers * (1 + spare)
  i32 requests_at;  // word of the first request
  i32 reserved[7];
};

__host__ __device__ constexpr u32 attention_made_for(u32 tile_rows, u32 tile_kv, u32 group, bool causal, u32 spare) {
  return (((tile_rows * 65599 + tile_kv) * 65599 + group) * 64 + (causal ? 32 : 0) + spare) ^ 0x4b415450;
}

// Lengths of a request. kv_base is what the caller's kv_indptr says: a token of ragged k and v, or an entry of a page table.
struct AttentionRequest { i32 qo_begin, qo_len, kv_base, kv_len; };

// A tile or a part of one. Rows [first_row, min(first_row + TILE_ROWS, qo_len * GROUP)) with the kv tokens [kv_begin, kv_end) of the request:
// kv_begin is a multiple of TILE_KV; so is kv_end, or it is one past the last token that a row of the tile sees, at most kv_len. Every kv token that
// causal and window leave to a row of the tile is there; a custom mask leaves out none. A whole tile may have no kv at all (kv_begin == kv_end:
// write 0 and -inf), a part always has some.
struct AttentionItem {
  i32 request, kv_head, first_row;
  i32 qo_begin, qo_len;         // the request's tokens of q are [qo_begin, qo_begin + qo_len)
  i32 kv_len, kv_base;          // see AttentionRequest
  i32 kv_begin, kv_end;
  i32 first_slot, part, parts;  // of the tile; parts 1: whole, and first_slot is -1

  __device__ __forceinline__ bool whole() const { return parts == 1; }
  __device__ __forceinline__ i32 slot() const { return first_slot + part; }
};

struct AttentionPlan {
  i32* words;
  i32 workers;    // of the limits, which is the grid's size
  i32 spare = 0;  // as the manifest's [plan] says

  static constexpr int HEADER = 16, ITEM = 12;
  static_assert(sizeof(AttentionHeader) == 4 * HEADER && sizeof(AttentionItem) == 4 * ITEM, "words as the host writes them");

  __device__ __forceinline__ i32 counters_at() const { return HEADER + (workers + 1 + 3) / 4 * 4; }
  __device__ __forceinline__ i32 items_at() const { return counters_at() + (workers * (1 + spare) + 1 + 3) / 4 * 4; }
  __device__ __forceinline__ i32* taken() const { return words + counters_at() + workers * (1 + spare); }

  // Ends the launch with an error (a trap: the context is lost) where the plan was made for other tiles, heads or masks: rather than results of other
  // lengths, or none at all. One load of 16 bytes, beside those that begin() makes. After pdl_wait().
  __device__ __forceinline__ void require(u32 made_for, i32 kv_heads, i32 window_left) const {
    const Vec<i32, 4> v = load<4>(words);
    if (v.word[0] != made_for || static_cast<i32>(v.word[1]) != workers || static_cast<i32>(v.word[2]) != kv_heads ||
        static_cast<i32>(v.word[3]) != max(window_left, -1))
      __trap();
  }

  // Begins to bring to the L2 what begin() and item() read: allowed before pdl_wait(), as all stores go there. REQUIRES: spare >= 2, since a plan then
  // has room for as many words as this touches.
  __device__ __forceinline__ void prefetch() const {
    if (threadIdx.x < 2) {
      const i32* const at = words + (threadIdx.x == 0 ? HEADER + static_cast<i32>(blockIdx.x) : items_at() + 32 * static_cast<i32>(blockIdx.x));
      asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    }
  }

  // The items of a worker are [begin, end); begin(workers) is the first spare one. Loads in order (vector.cuh): after pdl_wait().
  __device__ __forceinline__ i32 begin(i32 worker) const { return static_cast<i32>(load<1>(words + HEADER + worker).word[0]); }
  __device__ __forceinline__ i32 end(i32 worker) const { return begin(worker + 1); }

  __device__ __forceinline__ AttentionItem item(i32 i) const {
    const Vec<i32, ITEM> v = load<ITEM>(words + items_at() + static_cast<i64>(i) * ITEM);
    const auto at = [&](int word) { return static_cast<i32>(v.word[word]); };
    return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11)};
  }

  __device__ __forceinline__ i32 items() const { return static_cast<i32>(load<1>(words + 6).word[0]); }

  // For references, which know of no items.
  __device__ __forceinline__ i32 requests() const { return static_cast<i32>(load<1>(words + 4).word[0]); }
  __device__ __forceinline__ AttentionRequest request(i32 i) const {
    const Vec<i32, 4> v = load<4>(words + static_cast<i32>(load<1>(words + 8).word[0]) + 4 * static_cast<i64>(i));
    return {static_cast<i32>(v.word[0]), static_cast<i32>(v.word[1]), static_cast<i32>(v.word[2]), static_cast<i32>(v.word[3])};
  }

  // Spare items [first, end): none, or every block of the grid has items of its own, too. A block takes first_taken() for its first one, and then asks
  // again as long as it got one: two steps, for one thread, so that the answer is waited for where it is needed.
  __device__ __forceinline__ i32 first_taken(i32 first, i32 end) const {
    const i32 own = first + static_cast<i32>(blockIdx.x);
    return own < end ? own : -1;
  }
  __device__ __forceinline__ i32 ask() const { return atomicAdd(taken(), 1); }
  __device__ __forceinline__ i32 answer(i32 asked, i32 first, i32 end) const {
    if (asked == end - first - 1) *taken() = 0;  // the launch's last question: for the next one
    return first + workers + asked < end ? first + workers + asked : -1;
  }

  // Says that the block has written the slot of its part. True for the block that comes last of the tile: it sees all of the tile's slots, and merges
  // them. All threads call it; two barriers. `last`: one word of shared memory, used for nothing else.
  __device__ __forceinline__ bool arrive(const AttentionItem& item, i32* last) const {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
      i32* const counter = words + counters_at() + item.first_slot / 2;
      i32 before;  // releases what all threads of the block have stored, acquires what the other blocks have
      asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
      *last = before == item.parts - 1;
      if (*last) *counter = 0;  // nobody else of this launch comes: for the next one
    }
    __syncthreads();
    return *last != 0;
  }
};

// Partial results in the workspace: rows [slots][ROWS][WIDTH], then a shift [slots][ROWS] of each (base 2), all f32; slots is 2 * workers * (1 + spare).
// What a row holds is the kernel's own; attn_decode_paged has the shift in it, and none behind.
template <int ROWS, int WIDTH>
struct AttentionSlots {
  f32* workspace;
  i32 slots;

  __device__ __forceinline__ f32* rows(i32 slot) const { return workspace + static_cast<i64>(slot) * (ROWS * WIDTH); }
  __device__ __forceinline__ f32* shifts(i32 slot) const {
    return workspace + static_cast<i64>(slots) * (ROWS * WIDTH) + static_cast<i64>(slot) * ROWS;
  }
};

}  // namespace kiln
