// A warp's own ring of steps of keys and values, copied out of the pages of a cache while it computes: no
// warp waits for another one, and the copies run ahead over the ends of work items.
#pragma once
#include "attention/decode/items.cuh"
#include "attention/kv_tile.cuh"
#include "attention/paged.cuh"
#include "attention/work_list.cuh"
#include "kiln/copy_async.cuh"

namespace kiln {

// Element (page, token in the page, head, i) of k or v.
struct PageStrides {
  i64 page, slot, head;
};

template <typename KV>
struct PagedCache {
  const KV *k, *v;
  const i32* indices;  // a request's page n is indices[kv_base + n]
  i32 page_size;
  PageStrides k_stride, v_stride;
};

// The kv tokens [begin, end) of an item that its token of q sees.
struct DecodeRange {
  i32 begin, end;

  __device__ __forceinline__ DecodeRange(const AttentionItem& item, int group, i32 window_left) {
    const i32 own = item.kv_len - item.qo_len + item.first_row / group;  // right-aligned
    // own may be far below 0, window_left 2^31 - 1
    begin = max(item.kv_begin, window_left >= 0 ? own - min(window_left, item.kv_len) : 0);
    end = item.kv_end;
  }
};

// The q heads of kv heads follow each other.
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

// ROWS tokens are a step; the warps of a block take turns.
template <typename T, typename KV, int D, int DV, int GROUP, int ROWS, int STAGES, int WARPS>
struct PagedRing {
  using Keys = KvTile<KV, D>;
  using Values = KvTile<KV, DV>;
  using Items = DecodeItems<32 * WARPS>;
  struct Place {
    i64 k, v;
  };  // elements from the caches' begin
  // What is asked for once in a batch or in an item is here as well: registers are what lacks (D = 256).
  struct Shared {
    alignas(128) u8 keys[STAGES][ROWS * Keys::BYTES];
    u8 values[STAGES][ROWS * Values::BYTES];
    alignas(16) T queries[STAGES][GROUP * D];  // of the item that begins with the stage's step
    Place places[32];                          // of the tokens of `now`
    const T *now_queries, *next_queries;       // of the items that begin with `now` and with `next`
    i32 batch_pages, batch_entries;            // that a batch of turns goes on by
    i32 head;                                  // of `next`
  };

  // Pages are looked up for so many steps at once, a lane for each token: while a batch is copied, the next one's are on their way, since behind the
  // copies of all SMs that takes longer than a step.
  static constexpr int BATCH = 32 / ROWS;
  struct Batch {
    i32 at = 0, end = 0;  // tokens of the item; those of the batch's next step begin at `at`
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
  i32 item = 0;                                 // the first that is not yet begun
  Batch now, next;
  i32 table = 0, entry = 0,
      number;  // of this lane's token of `next`: its page's place in indices, its place in the page, the page
  int step = BATCH;  // of `now`

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

  // With the block's first item: looks up its pages. It is given, since `items` need not be there yet.
  __device__ __forceinline__ void begin(const AttentionItem& first, i32 first_number) {
    item = first_number + 1;
    enter(first);
    look_up();
    note(first);
  }
  // fill() asks for no item behind the first one: `items` need not be there for it either. The same for all warps.
  __device__ __forceinline__ bool fill_needs_only(const AttentionItem& first) const {
    constexpr int BATCHES = 1 + STAGES / BATCH;  // that fill() begins
    const DecodeRange range(first, GROUP, window_left);
    return range.end - range.begin >= (BATCHES * BATCH + 1) * TURN;
  }
  // All that is to be under way.
  __device__ __forceinline__ void fill() {
    if (next.at >= next.end) next_item(), look_up();
    next_batch();
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) {
      copy_keys(stage);
      copy_values(stage);
    }
  }

  // Begins to copy the next step's keys; then its values. Each is a group of copies, an empty one behind the
  // last item.
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
    if (++step == BATCH || now.at >= now.end) next_batch();  // while all that can be is under way
  }

  // Until the oldest group has arrived, in all lanes: two follow each other in every step.
  __device__ __forceinline__ void wait() const {
    copy_async_wait<2 * STAGES - 1>();
    __syncwarp();
  }

 private:
  // `next` begins with the item. False: the warp has no step of it.
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

  // Begins to load the pages of the next batch.
  __device__ __forceinline__ void look_up() {
    number = 0;
    if (next.at + lane / ROWS * TURN + lane % ROWS < next.end)
      number = static_cast<i32>(load<1>(cache.indices + table).word[0]);
  }
  // The places of the next batch's tokens, for all lanes; and on to the one behind it.
  __device__ __forceinline__ void next_batch() {
    __syncwarp();  // the head has been written, and all have read the places
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

  // `slot`: elements from a token of a page to the next.
  template <typename Tile, typename Offset>
  __device__ __forceinline__ void copy(u8* stage, const KV* base, i64 slot, Offset offset) const {
    constexpr int EACH = 16 / static_cast<int>(sizeof(KV));  // elements of a chunk
    const u32 to = shared_address(stage);
    const Place* const places = shared.places + step * ROWS;
    const i32 rows = now.end - now.at;  // any more are zeros
    if (32 % Tile::CHUNKS == 0 && (now.at | cache.page_size) % 16 == 0 &&
        rows > 0) {  // each 16 follow each other in a page: an address for all of them
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
      constexpr int SOME = ROOMY ? 4 : 2;  // of all, addresses would take 30 registers
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
