// Copies keys and values from the pages of a cache into a warp's own ring of stages, while the warp computes.
// No warp waits for another warp, and the copies run ahead into the next items.
#pragma once
#include "attention/decode/items.cuh"
#include "attention/kv_tile.cuh"
#include "attention/paged.cuh"
#include "attention/work_list.cuh"
#include "kiln/copy_async.cuh"

namespace kiln {

// The strides of k or v in elements: to the next page, to the next token of a page and to the next head.
struct PageStrides {
  i64 page, slot, head;
};

template <typename KV>
struct PagedCache {
  const KV *k, *v;
  const i32* indices;  // page n of a request is indices[kv_base + n]
  i32 page_size;
  PageStrides k_stride, v_stride;
};

// The kv tokens [begin, end) of an item that its query token sees.
struct DecodeRange {
  i32 begin, end;

  __device__ __forceinline__ DecodeRange(const AttentionItem& item, int group, i32 window_left) {
    // The last query token sees the last kv token.
    const i32 own = item.kv_len - item.qo_len + item.first_row / group;
    // min() keeps the difference within 32 bits: `own` may be far below 0, and window_left may be 2^31 - 1.
    begin = max(item.kv_begin, window_left >= 0 ? own - min(window_left, item.kv_len) : 0);
    end = item.kv_end;
  }
};

// Finds the queries of an item. The q heads of a kv head follow each other.
template <typename T>
struct PackedQueries {
  const T* begin;
  i64 stride, stride_head;

  __device__ __forceinline__ static i64 token(const AttentionItem& item, int group) {
    return item.qo_begin + item.first_row / group;
  }
  __device__ __forceinline__ const T* of(const AttentionItem& item, int group) const {
    return begin + token(item, group) * stride + static_cast<i64>(item.kv_head) * group * stride_head;
  }
};

// A warp's ring. A step is ROWS kv tokens of an item, and the warps of a block take turns at the steps. All
// lanes of the warp call each function.
template <typename T, typename KV, int D, int DV, int GROUP, int ROWS, int STAGES, int WARPS>
struct PagedRing {
  using Keys = KvTile<KV, D>;
  using Values = KvTile<KV, DV>;
  using Items = DecodeItems<32 * WARPS>;
  // A token's place counts elements from the start of k, and of v.
  struct Place {
    i64 k, v;
  };
  // The values that a batch or an item needs only once are also in shared memory, because registers are
  // scarce (D = 256).
  struct Shared {
    alignas(128) u8 keys[STAGES][ROWS * Keys::BYTES];
    u8 values[STAGES][ROWS * Values::BYTES];
    alignas(16) T queries[STAGES][GROUP * D];  // queries of the item that begins with the stage's step
    Place places[32];                          // places of the tokens of `now`
    const T *now_queries, *next_queries;       // queries of the items that begin with `now` and with `next`
    i32 batch_pages, batch_entries;            // pages and entries from a batch to the next
    i32 head;                                  // kv head of `next`
  };

  // The pages of BATCH steps are looked up at once, one lane for each token. While a batch is copied, the
  // lookups of the next batch are under way. They queue after the copies of all SMs, and take longer than
  // a step.
  static constexpr int BATCH = 32 / ROWS;
  struct Batch {
    i32 at = 0, end = 0;  // kv tokens of the item; the batch's next step begins at `at`
    bool begins = false;  // an item begins with that step
  };

  const PagedCache<KV>& cache;
  const PackedQueries<T>& q;
  const AttentionPlan& plan;
  const Items& items;
  Shared& shared;
  const int warp, lane;
  const i32 window_left;
  static constexpr i32 TURN = WARPS * ROWS;     // tokens from a step of the warp to its next one
  static constexpr bool ROOMY = D + DV <= 256;  // registers are left, and steps are short
  i32 item = 0;                                 // the first item that has not begun
  Batch now, next;
  // These belong to this lane's token of `next`: `table` is its page's index in the cache's `indices`,
  // `entry` its position in the page, and `number` the page.
  i32 table = 0, entry = 0, number;
  int step = BATCH;  // number of the next step of `now`

  __device__ __forceinline__ PagedRing(const PagedCache<KV>& cache, const PackedQueries<T>& q,
                                       const AttentionPlan& plan, const Items& items, Shared& shared,
                                       int warp, int lane, i32 window_left)
      : cache(cache),
        q(q),
        plan(plan),
        items(items),
        shared(shared),
        warp(warp),
        lane(lane),
        window_left(window_left) {
    if (lane == 0)
      shared.batch_pages = BATCH * TURN / cache.page_size,
      shared.batch_entries = BATCH * TURN % cache.page_size;
  }

  // Begins the block's first item, number `first_number` of the work list, and looks up its pages. The item
  // is a parameter, because `items` need not be loaded yet.
  __device__ __forceinline__ void begin(const AttentionItem& first, i32 first_number) {
    item = first_number + 1;
    enter(first);
    look_up();
    note(first);
  }
  // Returns whether fill() needs no item after the first item. If so, fill() may be called before `items` is
  // loaded. All warps get the same answer.
  __device__ __forceinline__ bool fill_needs_only(const AttentionItem& first) const {
    constexpr int BATCHES = 1 + STAGES / BATCH;  // batches that fill() begins
    const DecodeRange range(first, GROUP, window_left);
    return range.end - range.begin >= (BATCHES * BATCH + 1) * TURN;
  }
  // Begins the copies of all stages.
  __device__ __forceinline__ void fill() {
    if (next.at >= next.end) next_item(), look_up();
    next_batch();
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) {
      copy_keys(stage);
      copy_values(stage);
    }
  }

  // copy_keys() begins to copy the next step's keys. copy_values() then begins to copy that step's values.
  // Each call makes a group of copies, which is empty after the last item. REQUIRES: all lanes have read the
  // stage's previous contents.
  __device__ __forceinline__ void copy_keys(int stage) {
    copy<Keys>(shared.keys[stage], cache.k, cache.k_stride.slot, [&](const Place& place) { return place.k; });
    if (now.begins) copy_queries(stage);
    copy_async_commit();
  }
  __device__ __forceinline__ void copy_values(int stage) {
    copy<Values>(shared.values[stage], cache.v, cache.v_stride.slot,
                 [&](const Place& place) { return place.v; });
    copy_async_commit();
    now.at += TURN;
    // The next batch begins here, because all copies that there is room for are under way.
    if (++step == BATCH || now.at >= now.end) next_batch();
  }

  // Waits until the oldest group has arrived, in all lanes. Each step has two groups.
  __device__ __forceinline__ void wait() const {
    copy_async_wait<2 * STAGES - 1>();
    __syncwarp();
  }

 private:
  // Makes `next` begin with the item, and returns whether the warp has a step of the item.
  __device__ __forceinline__ bool enter(const AttentionItem& of) {
    const DecodeRange range(of, GROUP, window_left);
    next.at = range.begin + warp * ROWS;
    next.end = range.end;
    const u32 token = next.at + lane / ROWS * TURN + lane % ROWS,
              nth = token / static_cast<u32>(cache.page_size);
    next.begins = true;
    table = of.kv_base + nth;
    entry = token - nth * cache.page_size;
    return next.at < next.end;
  }
  // Notes the head and the queries of the item with which `next` begins. The next __syncwarp() shows them to
  // all lanes.
  __device__ __forceinline__ void note(const AttentionItem& of) const {
    if (lane == 0) shared.head = of.kv_head, shared.next_queries = q.of(of, GROUP);
  }
  __device__ __forceinline__ void next_item() {
    while (item < items.end) {
      const AttentionItem of = items(item++, plan);
      note(of);
      if (enter(of)) return;
    }
    next.at = next.end = 0;
    next.begins = false;
  }

  __device__ __forceinline__ void copy_queries(int stage) {
    const T* const from = shared.now_queries;
#pragma unroll 1
    for (int i = lane; i < GROUP * D / 8; i += 32)
      copy_async<8>(shared.queries[stage] + i * 8, from + i / (D / 8) * q.stride_head + i % (D / 8) * 8);
    now.begins = false;
  }

  // Begins to load the page of this lane's token of the next batch.
  __device__ __forceinline__ void look_up() {
    number = 0;
    if (next.at + lane / ROWS * TURN + lane % ROWS < next.end)
      number = static_cast<i32>(load<1>(cache.indices + table).word[0]);
  }
  // Makes the next batch `now`, writes the places of its tokens for all lanes, and goes on to the batch
  // after it.
  __device__ __forceinline__ void next_batch() {
    __syncwarp();  // the head has been written, and all lanes have read the old places
    const auto offset = [&](const PageStrides& s) {
      return number * s.page + entry * s.slot + shared.head * s.head;
    };
    shared.places[lane] = {offset(cache.k_stride), offset(cache.v_stride)};
    if (next.begins && lane == 0) shared.now_queries = shared.next_queries;
    __syncwarp();
    now = next;
    step = 0;
    next.begins = false;
    next.at += BATCH * TURN;
    table += shared.batch_pages;
    entry += shared.batch_entries;
    if (entry >= cache.page_size) entry -= cache.page_size, ++table;
    if (next.at >= next.end) next_item();
    look_up();
  }

  // Begins to copy the step's rows of k or v to a stage. `slot` is the stride from a token of a page to the
  // next token. `offset` returns the part of a Place that counts from `base`.
  template <typename Tile, typename Offset>
  __device__ __forceinline__ void copy(u8* stage, const KV* base, i64 slot, Offset offset) const {
    constexpr int EACH = 16 / static_cast<int>(sizeof(KV));  // elements of a chunk
    const u32 to = shared_address(stage);
    const Place* const places = shared.places + step * ROWS;
    const i32 rows = now.end - now.at;  // rows of the step that exist; the others become zeros
    if (32 % Tile::CHUNKS == 0 && (now.at | cache.page_size) % 16 == 0 && rows > 0) {
      // Each run of 16 tokens is contiguous in a page, so one address serves the whole run.
      constexpr int AT_ONCE = static_cast<int>(ceil_div(32, Tile::CHUNKS));
      const int first = lane / Tile::CHUNKS, chunk = lane % Tile::CHUNKS;
#pragma unroll
      for (int line = 0; line < ROWS; line += 16) {
        const KV* from = base + offset(places[line]) + first * slot + chunk * EACH;
#pragma unroll
        for (int row = line; row < line + 16; row += AT_ONCE, from += AT_ONCE * slot)
          copy_async_or_zero(to + Tile::offset(row + first, chunk), from, row + first < rows);
      }
    } else if (rows > 0) {
      // Fully unrolled, the loop would need 30 registers for addresses.
      constexpr int SOME = ROOMY ? 4 : 2;
#pragma unroll SOME
      for (int i = 0; i < ROWS * Tile::CHUNKS / 32; ++i) {
        const int nth = i * 32 + lane, row = nth / Tile::CHUNKS, chunk = nth % Tile::CHUNKS;
        copy_async_or_zero(to + Tile::offset(row, chunk), base + offset(places[row]) + chunk * EACH,
                           row < rows);
      }
    }
  }
};

}  // namespace kiln
