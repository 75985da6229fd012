// The plan of an attention launch, as kiln_kernel_attention_plan() writes it: what each block of a fixed grid has to do, whatever the lengths are.
//
// Rows are packed: row r of a request and kv head is its token r / GROUP and q head kv_head * GROUP + r % GROUP. A tile is TILE_ROWS of them with
// the kv tokens that their masks leave. The tiles follow each other by request, kv head, row; workers, which are the blocks of the grid, have
// about equal shares of that line, so that a worker has whole tiles and at most one part of a tile at either end of its share. Where the manifest wants heads
// together, h workers behind each other are a team, which has a share of a line of h heads a tile: each of them has the team's rows and kv tokens of
// its own head. Where it wants tiles together, whole tiles of a request and head behind each other are one item, which AttentionTiles takes apart. A
// whole tile is written at once; a part goes to a slot of the workspace, and the worker that comes last of a tile merges its parts, in their order, without
// a slot for its own where it knows in time that it is the last: runs give the same bits.
//
// Words (i32) of the plan; where a kernel finds things depends on the limits alone, so that a captured graph takes the next plan out of the same buffer:
//   [0, 16)       header (AttentionHeader), of which launches change nothing but its ticks
//   [16, 16 + a)  where each worker's items begin, and the end of the last one's; a = workers + 1, rounded up to 4
//   a words       counters of arrivals, 0 before and after a launch: counter i is that of the tile whose first slot is 2i or 2i + 1
//   12 * workers  a copy of each worker's first item, so that one can load it beside the table instead of behind it; anything where a worker has none
//   then          items (AttentionItem); behind the last one, at header.requests_at, the requests (AttentionRequest)
#pragma once
#include "attention/words.cuh"
#include "kiln/vector.cuh"

namespace kiln {

struct AttentionPlan {
  i32* words;
  i32 workers;  // of the limits, which is the grid's size

  static constexpr int HEADER = 16, ITEM = 12;
  static_assert(sizeof(AttentionHeader) == 4 * HEADER && sizeof(AttentionItem) == 4 * ITEM,
                "words as the host writes them");

  __device__ __forceinline__ i32 table() const {
    return (workers + 1 + 3) / 4 * 4;
  }  // words of the second part, and of the third

  // Ends the launch with an error (a trap: the context is lost) where the plan was made for other tiles, heads or masks: rather than results of other
  // lengths, or none at all. One load of 16 bytes, beside those that begin() makes. After pdl_wait().
  __device__ __forceinline__ void require(u32 made_for, i32 kv_heads, i32 window_left) const {
    const Vec<i32, 4> v = load<4>(words);
    const u32 differs = (v.word[0] ^ made_for) | (v.word[1] ^ workers) | (v.word[2] ^ kv_heads) |
                        (v.word[3] ^ max(window_left, -1));
    if (differs != 0) asm volatile("trap;");  // one branch: all that is compared is there before the load
  }

  // Begins to bring to the L2 what begin() and first_item() read of a worker: allowed before pdl_wait(), since that is where all stores go.
  __device__ __forceinline__ void prefetch(u32 worker) const {
    if (threadIdx.x >= 3) return;
    const i32 first_item = 2 * table() + ITEM * worker + 8 * (threadIdx.x - 1);  // two sectors of 32 bytes
    asm volatile("prefetch.global.L2 [%0];" ::"l"(words + HEADER + (threadIdx.x == 0 ? worker : first_item)));
  }

  // The items of a worker are [begin, end). Loads in order (vector.cuh): after pdl_wait().
  __device__ __forceinline__ i32 begin(i32 worker) const {
    return static_cast<i32>(load<1>(words + HEADER + worker).word[0]);
  }
  __device__ __forceinline__ i32 end(i32 worker) const { return begin(worker + 1); }

  __device__ __forceinline__ AttentionItem item(i32 i) const { return item_of(load<ITEM>(words_of(i))); }
  __device__ __forceinline__ const i32* words_of(i32 i) const {
    return first_items() + (workers + static_cast<i64>(i)) * ITEM;
  }
  static __device__ __forceinline__ AttentionItem item_of(const Vec<i32, ITEM>& v) {
    const auto at = [&](int word) { return static_cast<i32>(v.word[word]); };
    return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11)};
  }
  // item(begin(worker)), and no load has to wait for another one. REQUIRES begin(worker) < end(worker): it may be loaded before that is known.
  __device__ __forceinline__ AttentionItem first_item(i32 worker) const {
    return item_of(load<ITEM>(first_items() + static_cast<i64>(worker) * ITEM));
  }

  __device__ __forceinline__ i32 busy() const { return static_cast<i32>(load<1>(&header()->busy).word[0]); }
  // Ticks are a launch's own, which begins at whatever number the one before has left.
  __device__ __forceinline__ u32 tick() const {  // how many there are now
    u32 before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(&header()->ticks));
    return before + 1;
  }
  __device__ __forceinline__ u32 ticks() const {
    u32 out;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(out) : "l"(&header()->ticks));
    return out;
  }

  // For references, which know of no items.
  __device__ __forceinline__ i32 requests() const {
    return static_cast<i32>(load<1>(&header()->requests).word[0]);
  }
  __device__ __forceinline__ AttentionRequest request(i32 i) const {
    const Vec<i32, 4> v =
        load<4>(words + static_cast<i32>(load<1>(&header()->requests_at).word[0]) + 4 * static_cast<i64>(i));
    return {static_cast<i32>(v.word[0]), static_cast<i32>(v.word[1]), static_cast<i32>(v.word[2]),
            static_cast<i32>(v.word[3])};
  }

  // Says that the block has written the slot of its part. True for the block that comes last of the tile: it sees all of the tile's slots, and merges
  // them. All threads call it; two barriers. `last`: one word of shared memory, written behind the first one.
  __device__ __forceinline__ bool arrive(const AttentionItem& item, i32* last) const {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) *last = count(item);
    __syncthreads();
    return *last != 0;
  }
  // The same for a part that a warp alone has written. All lanes call it.
  __device__ __forceinline__ bool arrive_warp(const AttentionItem& item) const {
    __syncwarp();
    int last = 0;
    if (threadIdx.x % 32 == 0) last = count(item);
    __syncwarp();  // what lane 0 has acquired is then there for all: the shuffle orders no memory
    return __shfl_sync(0xffffffffu, last, 0) != 0;
  }
  // Whether all other parts of the item's tile have been written. Then the block is the one that merges them, and settles instead of arriving: its own part
  // need not be written. By one thread, a barrier behind it, behind which the block sees the others' slots.
  __device__ __forceinline__ bool others_are_there(const AttentionItem& item) const {
    i32 arrived;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(arrived) : "l"(counter(item)) : "memory");
    return arrived == item.parts - 1;
  }
  __device__ __forceinline__ void settle(const AttentionItem& item) const { *counter(item) = 0; }

 private:
  __device__ __forceinline__ AttentionHeader* header() const {
    return reinterpret_cast<AttentionHeader*>(words);
  }
  __device__ __forceinline__ const i32* first_items() const { return words + HEADER + 2 * table(); }
  __device__ __forceinline__ i32* counter(const AttentionItem& item) const {
    return words + HEADER + table() + item.first_slot / 2;
  }
  // One more part has been written: was it the last one?
  __device__ __forceinline__ bool count(const AttentionItem& item) const {
    i32 before;  // releases what all threads of the block have stored, acquires what the other blocks have
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter(item))
                 : "memory");
    if (before != item.parts - 1) return false;
    settle(item);  // nobody else of this launch comes: for the next one
    return true;
  }
};

// The tiles and parts of tiles of a block, one after the other, in shared memory: for a kernel whose plan has its tiles together. A register that would
// count them through a tile's products is saved, too.
template <int TILE_ROWS, int TILE_KV, int GROUP, bool CAUSAL, bool WINDOW>
struct AttentionTiles {
  AttentionItem now;  // a tile, or a part of one
  i32 item, end;      // of the plan: that of `now`, and the end of the block's
  i32 left;           // tiles of the item behind this one
  bool is_there;      // the next item is in `now` already
  bool lets_in;       // the next launch, before this one's end
  const i32* items;   // the plan's

  // By one thread, before anything else: the plan's begin(), end() and first_item() of the block's worker.
  __device__ __forceinline__ void begin(const AttentionPlan& plan, i32 items_begin, i32 items_end,
                                        const AttentionItem& first, bool lets_next_in = true) {
    now = first;
    item = items_begin - 1;
    end = items_end;
    left = 0;
    is_there = true;
    lets_in = lets_next_in;
    items = plan.words_of(0);
  }
  // By one thread, a barrier before and one behind it: on to the next one. It is there if any().
  __device__ __forceinline__ void next(const AttentionPlan& plan, i32 window_left) {
    if (left > 0) {
      now.next_tile<CAUSAL, WINDOW>(TILE_ROWS, TILE_KV, GROUP, window_left);
      --left;
    } else if (++item < end) {
      constexpr int WORDS = AttentionPlan::ITEM;
      if (!is_there) now = AttentionPlan::item_of(load<WORDS>(items + static_cast<i64>(item) * WORDS));
      is_there = false;
      left = now.tiles() - 1;
    }
  }
  __device__ __forceinline__ bool any() const { return item < end; }
  // Whether the next launch may come in behind the products of `now`: it is the block's last tile.
  __device__ __forceinline__ bool let_next_in() const { return lets_in && item + 1 == end && left == 0; }
};

// Partial results in the workspace: rows [2 * workers][ROWS][WIDTH], then a shift [2 * workers][ROWS] of each (base 2), all f32. What a row holds is the
// kernel's own; attn_decode_paged has the shift in it, and none behind.
template <int ROWS, int WIDTH>
struct AttentionSlots {
  f32* workspace;
  i32 workers;

  __device__ __forceinline__ f32* rows(i32 slot) const {
    return workspace + static_cast<i64>(slot) * (ROWS * WIDTH);
  }
  __device__ __forceinline__ f32* shifts(i32 slot) const {
    return workspace + 2 * static_cast<i64>(workers) * (ROWS * WIDTH) + static_cast<i64>(slot) * ROWS;
  }
};

}  // namespace kiln
