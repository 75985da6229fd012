// A kernel's view of an attention work list. The list says what each block of a fixed grid has to do,
// whatever the lengths of the batch are. kiln_kernel_attention_plan() writes the list on the host.
// attention/words.h describes its words.
//
// Rows are packed: row r of a request and kv head is query token r / GROUP and q head kv_head * GROUP + r %
// GROUP. A tile is TILE_ROWS packed rows with the kv tokens that the masks leave to them. The host orders all
// tiles by request, kv head and row, and cuts this sequence into about equal shares. A worker is a block of
// the grid, and has one share: whole tiles, and at most one part of a tile at either end.
//
// Two options of a manifest change the list:
// - heads_together: h consecutive workers are a team. The host then cuts a sequence in which a tile stands
//   for h heads. Each worker of a team has the team's rows, and the kv tokens of its own head.
// - tiles_together: consecutive whole tiles of one request and kv head are one item. AttentionTiles takes the
//   item apart.
//
// A block writes the result of a whole tile at once, and the result of a part to a slot of the workspace. The
// worker that writes the last part of a tile merges the parts in their order, so two runs give the same bits.
// That worker needs no slot for its own part if it knows in time that its part is the last.
#pragma once
#include "attention/words.cuh"
#include "kiln/copy_async.cuh"
#include "kiln/fault.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// The items [begin, end) of a worker. `first` is undefined if there are none.
struct AttentionShare {
  i32 begin, end;
  AttentionItem first;
};

struct AttentionPlan {
  i32* words;
  i32 workers;  // blocks of the grid

  static constexpr int HEADER = AttentionWords::HEADER, ITEM = AttentionWords::ITEM;

  // The number of words of the table, and also of the counters.
  __device__ __forceinline__ i32 table() const { return AttentionWords::table(workers); }

  // Returns whether the list was made for other tiles, heads, masks or numbers of workers. Results would then be
  // wrong or missing: the kernel calls refuse() instead, and returns. All threads get the same answer. The check
  // costs one load of 16 bytes, which runs beside the loads of share(). Call it after pdl_wait().
  __device__ __forceinline__ bool differs(u32 made_for, i32 kv_heads, i32 window_left,
                                          i32 window_right = -1) const {
    const Vec<i32, 4> v = load<4>(words);
    return ((v.word[0] ^ made_for ^ attention_right_window(max(window_right, -1))) | (v.word[1] ^ workers) |
            (v.word[2] ^ kv_heads) | (v.word[3] ^ max(window_left, -1))) !=
           0;  // one branch; only `v` has to be loaded
  }
  // Reports a list that differs() to the host. All threads of the grid call it.
  __device__ __forceinline__ void refuse(u32 made_for, i32 kv_heads, i32 window_left,
                                         i32 window_right = -1) const {
    if (blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x + threadIdx.y + threadIdx.z != 0) return;
    const Vec<i32, 4> v = load<4>(words);
    const u32 right = v.word[0] ^ made_for;  // of the list, if it is for this kernel
    const bool same = right == attention_right_window(max(window_right, -1));
    report_fault(!same && right != attention_right_window(header()->window_right) ? FAULT_OTHER_KERNEL
                 : !same                                                          ? FAULT_OTHER_WINDOW
                 : v.word[1] != static_cast<u32>(workers)                         ? FAULT_OTHER_WORKERS
                 : v.word[2] != static_cast<u32>(kv_heads)                        ? FAULT_OTHER_HEADS
                                                                                  : FAULT_OTHER_WINDOW);
  }

  // Starts to bring into the L2 what begin() and first_item() read for a worker. This is allowed before
  // pdl_wait(), because the stores of the previous launch go through the L2, too.
  __device__ __forceinline__ void prefetch(u32 worker) const {
    if (threadIdx.x >= 3) return;
    const i32 first_item = 2 * table() + ITEM * worker + 8 * (threadIdx.x - 1);  // two sectors of 32 bytes
    asm volatile("prefetch.global.L2 [%0];" ::"l"(words + HEADER + (threadIdx.x == 0 ? worker : first_item)));
  }

  // Returns whether the list is for as many workers as the launch has. begin(), end() and first_item() would read beyond
  // the end of a list for fewer workers, so share() needs the answer. Call it before pdl_wait(): the load then runs while
  // the previous launch ends. It goes to the L2, since the L1 would keep a word that the previous launch may change.
  __device__ __forceinline__ bool fits() const {
    i32 of_list;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(of_list) : "l"(&header()->workers) : "memory");
    return of_list == workers;
  }
  // Loads a worker's share. None of the three loads waits for another of them. `fits` is what fits() said before
  // pdl_wait(). If it was false, the previous launch may have written the list, and fits() is asked again. The share of
  // a list that does not fit is made of words that every list has. differs() is then true. Call it after pdl_wait().
  __device__ __forceinline__ AttentionShare share(i32 worker, bool fits) const {
    if (!fits) fits = this->fits();
    const AttentionPlan readable{words, fits ? workers : 0};
    const i32 at = fits ? worker : 0;
    return {readable.begin(at), readable.end(at), readable.first_item(at)};
  }

  // The items of a worker are [begin, end). The loads keep program order (vector.cuh). Call both
  // after pdl_wait(), for a list that fits.
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
  // Returns item(begin(worker)), but the load does not have to wait for the load of begin(). A caller may
  // load the item before it knows whether the worker has items; without items the result is undefined.
  __device__ __forceinline__ AttentionItem first_item(i32 worker) const {
    return item_of(load<ITEM>(first_items() + static_cast<i64>(worker) * ITEM));
  }

  __device__ __forceinline__ i32 busy() const { return static_cast<i32>(load<1>(&header()->busy).word[0]); }
  // A launch counts its ticks from the number that the previous launch left.
  // tick() counts one more, and returns the new number.
  __device__ __forceinline__ u32 tick() const {
    u32 before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(&header()->ticks));
    return before + 1;
  }
  __device__ __forceinline__ u32 ticks() const {
    u32 out;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(out) : "l"(&header()->ticks));
    return out;
  }

  // requests() and request() are for references, which read requests and no items.
  __device__ __forceinline__ i32 requests() const {
    return static_cast<i32>(load<1>(&header()->requests).word[0]);
  }
  __device__ __forceinline__ AttentionRequest request(i32 i) const {
    const Vec<i32, 4> v =
        load<4>(words + static_cast<i32>(load<1>(&header()->requests_at).word[0]) + 4 * static_cast<i64>(i));
    return {static_cast<i32>(v.word[0]), static_cast<i32>(v.word[1]), static_cast<i32>(v.word[2]),
            static_cast<i32>(v.word[3])};
  }

  // Counts the block's part as written, after the block has stored it in its slot. Returns true in the
  // block that writes the last part of the tile. That block sees all slots of the tile, and merges them.
  // All threads call it, and it has two barriers. `last` is one word of shared memory, written after the
  // first barrier.
  __device__ __forceinline__ bool arrive(const AttentionItem& item, i32* last) const {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) *last = count(item);
    __syncthreads();
    return *last != 0;
  }
  // Does what arrive() does, for a kernel whose barriers are not of the whole block. One thread calls it, after a barrier
  // of all threads that stored the part. The next barrier makes the slots of the tile visible to them.
  __device__ __forceinline__ bool arrive_between_barriers(const AttentionItem& item) const {
    return count(item);
  }
  // Does what arrive() does, for a part that one warp has written alone. All lanes call it.
  __device__ __forceinline__ bool arrive_warp(const AttentionItem& item) const {
    __syncwarp();
    int last = 0;
    if (threadIdx.x % 32 == 0) last = count(item);
    __syncwarp();  // makes what lane 0 acquired visible to all lanes: a shuffle orders no memory
    return __shfl_sync(0xffffffffu, last, 0) != 0;
  }
  // The counter of the item's tile, for blocks that merge together (mla/merge_share.cuh).
  __device__ __forceinline__ i32* counter(const AttentionItem& item) const {
    return AttentionWords::counters(words, workers) + item.first_slot / 2;
  }
  // Returns whether all other parts of the item's tile have been written. If so, this block merges them: it
  // calls settle() and not arrive(), and does not have to write its own part. One thread calls it; after the
  // next barrier the whole block sees the slots of the other parts.
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
  __device__ __forceinline__ const i32* first_items() const {
    return AttentionWords::first_items(words, workers);
  }
  // Counts one more part as written. Returns whether it was the last part of its tile.
  __device__ __forceinline__ bool count(const AttentionItem& item) const {
    i32 before;  // the atomic releases this block's stores, and acquires the stores of the others
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter(item))
                 : "memory");
    if (before != item.parts - 1) return false;
    settle(item);  // no other block of this launch counts: the counter is 0 for the next launch
    return true;
  }
};

// The results of rows that see nothing: 0, and an lse of -infinity. They stand in for the results of a launch whose
// list was refused, so that nothing reads what the memory held before. All threads of the grid call it. The loop is
// slow, and as short as it can be, because longer code would make some kernels spill registers.
// REQUIRES: blocks of DV / 8 threads or more along x; strides are multiples of 8.
template <int DV, typename T>
__device__ __forceinline__ void clear_results(T* o, f32* lse, u32 tokens, u32 heads, i64 stride_o,
                                              i64 stride_o_head) {
  static_assert(sizeof(T) == 2 && DV % 8 == 0, "a store has eight elements");
#pragma unroll 1
  for (u32 row = blockIdx.x; row < tokens * heads; row += gridDim.x) {
    T* const to = o + row / heads * stride_o + row % heads * stride_o_head;
    if (threadIdx.x < DV / 8) store(to + threadIdx.x * 8, Vec<T, 8>{});
    if (lse && threadIdx.x == 0) lse[row] = -__int_as_float(0x7f800000);
  }
}

// Goes through the tiles and parts of tiles of a block, for a kernel whose work list has tiles_together. The
// object lies in shared memory. This saves the registers that would hold it while a tile is computed.
template <int TILE_ROWS, int TILE_KV, int GROUP, bool CAUSAL, bool WINDOW>
struct AttentionTiles {
  AttentionItem now;                 // the current tile, or part of a tile
  alignas(16) AttentionItem coming;  // the item after it, once its copy has ended
  i32 item, end;     // index of the item that `now` belongs to, and the end of the block's items
  i32 left;          // tiles of that item after `now`
  bool is_there;     // the next item is already in `now`
  bool lets_in;      // whether the block lets the next launch begin early
  const i32* items;  // words of the first item of the list

  // One thread calls begin() and next(). It calls begin() first, with the share of the block's worker.
  __device__ __forceinline__ void begin(const AttentionPlan& plan, const AttentionShare& share,
                                        bool lets_next_in = true) {
    now = share.first;
    item = share.begin - 1;
    end = share.end;
    left = 0;
    is_there = true;
    lets_in = lets_next_in;
    items = plan.words_of(0);
  }
  // Goes to the next tile; any() then says whether that tile exists. Call it between two barriers of the block.
  __device__ __forceinline__ void next(const AttentionPlan& plan, i32 window_left, i32 window_right = -1) {
    if (left > 0) {
      go_to_next_tile<CAUSAL, WINDOW>(now, TILE_ROWS, TILE_KV, GROUP, window_left, window_right);
      --left;
    } else if (++item < end) {
      constexpr int WORDS = AttentionPlan::ITEM;
      if (!is_there) {
        copy_async_wait<0>();
        now = coming;
      }
      is_there = false;
      left = now.tiles() - 1;
      if (item + 1 < end) {  // the copy runs beside the tile
        copy_async<WORDS>(reinterpret_cast<i32*>(&coming), items + static_cast<i64>(item + 1) * WORDS);
        copy_async_commit();
      }
    }
  }
  __device__ __forceinline__ bool any() const { return item < end; }
  // Returns whether the next launch may begin after the products of `now`. `now` must be the block's last
  // tile, and begin() must have allowed it.
  __device__ __forceinline__ bool let_next_in() const { return lets_in && item + 1 == end && left == 0; }
};

// Partial results in the workspace, all f32. First come the rows [2 * workers][ROWS][WIDTH]. A shift to base
// 2 of each row follows: [2 * workers][ROWS]. A kernel decides what a row holds. attn_decode_paged keeps the
// shift inside the row, and has no shifts after the rows.
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
