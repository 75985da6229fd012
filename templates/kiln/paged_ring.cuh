// A warp's own ring of steps of keys and values, copied out of the pages of a cache while it computes: no
// warp waits for another one, and the copies run ahead over the ends of work items.
#pragma once
#include "kiln/attention_plan.cuh"
#include "kiln/copy_async.cuh"
#include "kiln/kv_tile.cuh"
#include "kiln/paged.cuh"

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
    begin = max(item.kv_begin, window_left >= 0 ? own - window_left : 0);
    end = item.kv_end;
  }
};

// ROWS tokens are a step; the warps of a block take turns.
template <typename KV, int D, int DV, int ROWS, int STAGES>
struct PagedRing {
  using Keys = KvTile<KV, D>;
  using Values = KvTile<KV, DV>;
  struct Place {
    i64 k, v;
  };  // elements from the caches' begin
  struct Shared {
    alignas(128) u8 keys[STAGES][ROWS * Keys::BYTES];
    u8 values[STAGES][ROWS * Values::BYTES];
    Place places[ROWS];  // of the step whose copies are being issued
  };

  const PagedCache<KV>& cache;
  const AttentionPlan& plan;
  Shared& shared;
  const int warp, warps, lane, group;
  const i32 window_left;
  const i32 step_pages, step_entries;              // a step of all warps: whole pages, and tokens of the next one
  i32 item, items_end;                             // those that are not yet begun
  i32 at = 0, end = 0;                             // tokens of the item: those of the next step begin at `at`
  i32 table = 0, head = 0, entry = 0, number = 0;  // of this lane's token: its page's place in indices, its place in the page, the page
  i32 rows = 0;                                    // tokens that the published step has; any more are zeros
  bool in_line = false;                            // each 16 of them follow each other in a page

  __device__ __forceinline__ PagedRing(const PagedCache<KV>& cache, const AttentionPlan& plan, Shared& shared, int warp, int warps, int lane, int group,
                                       i32 window_left, i32 items_begin, i32 items_end)
      : cache(cache),
        plan(plan),
        shared(shared),
        warp(warp),
        warps(warps),
        lane(lane),
        group(group),
        window_left(window_left),
        step_pages(warps * ROWS / cache.page_size),
        step_entries(warps * ROWS % cache.page_size),
        item(items_begin),
        items_end(items_end) {
#pragma unroll 1
    for (int stage = -1; stage < STAGES; ++stage) {  // at -1 there is nothing to copy yet: it goes to the first item
      copy_keys(stage);
      copy_values(stage);
    }
  }

  // Begins to copy the next step's keys; then its values. Each is a group of copies, an empty one behind the
  // last item.
  __device__ __forceinline__ void copy_keys(int stage) {
    publish();
    copy<Keys>(shared.keys[stage], cache.k, cache.k_stride.slot, [&](const Place& place) { return place.k; });
  }
  __device__ __forceinline__ void copy_values(int stage) {
    copy<Values>(shared.values[stage], cache.v, cache.v_stride.slot, [&](const Place& place) { return place.v; });
    __syncwarp();  // places are written again
  }

  // Until the oldest group has arrived, in all lanes: two follow each other in every step.
  __device__ __forceinline__ void wait() const {
    copy_async_wait<2 * STAGES - 1>();
    __syncwarp();
  }

 private:
  __device__ __forceinline__ void next_item() {
    at = end = 0;
    while (item < items_end) {
      const AttentionItem next = plan.item(item++);
      const DecodeRange range(next, group, window_left);
      at = range.begin + warp * ROWS;
      end = range.end;
      if (at >= end) continue;
      const u32 token = at + lane % ROWS, nth = token / static_cast<u32>(cache.page_size);
      head = next.kv_head;
      table = next.kv_base + nth;
      entry = token - nth * cache.page_size;
      break;
    }
    look_up();
  }

  // Begins to load the page of this lane's token: a step before it is used.
  __device__ __forceinline__ void look_up() {
    number = 0;
    if (at + lane % ROWS < end) number = static_cast<i32>(load<1>(cache.indices + table).word[0]);
  }

  // The places of a step's tokens, for all lanes; and on to the next step.
  __device__ __forceinline__ void publish() {
    rows = end - at;
    in_line = (at | cache.page_size) % 16 == 0;
    if (lane < ROWS && rows > 0) {
      const auto offset = [&](const PageStrides& s) { return number * s.page + entry * s.slot + head * s.head; };
      shared.places[lane] = {offset(cache.k_stride), offset(cache.v_stride)};
    }
    __syncwarp();
    at += warps * ROWS;
    if (at >= end) {
      next_item();
    } else {
      table += step_pages;
      entry += step_entries;
      if (entry >= cache.page_size) entry -= cache.page_size, ++table;
      look_up();
    }
  }

  // `slot`: elements from a token of a page to the next.
  template <typename Tile, typename Offset>
  __device__ __forceinline__ void copy(u8* stage, const KV* base, i64 slot, Offset offset) const {
    constexpr int EACH = 16 / static_cast<int>(sizeof(KV));  // elements of a chunk
    const u32 to = shared_address(stage);
    if (32 % Tile::CHUNKS == 0 && in_line && rows > 0) {  // fewer instructions: an address for 16 rows
      constexpr int AT_ONCE = static_cast<int>(ceil_div(32, Tile::CHUNKS));
      const int first = lane / Tile::CHUNKS, chunk = lane % Tile::CHUNKS;
#pragma unroll
      for (int line = 0; line < ROWS; line += 16) {
        const KV* from = base + offset(shared.places[line]) + first * slot + chunk * EACH;
#pragma unroll
        for (int row = line; row < line + 16; row += AT_ONCE, from += AT_ONCE * slot)
          copy_async_or_zero(to + Tile::offset(row + first, chunk), from, row + first < rows);
      }
    } else if (rows > 0) {
#pragma unroll 4  // of all, addresses would take 30 registers
      for (int i = 0; i < ROWS * Tile::CHUNKS / 32; ++i) {
        const int nth = i * 32 + lane, row = nth / Tile::CHUNKS, chunk = nth % Tile::CHUNKS;
        copy_async_or_zero(to + Tile::offset(row, chunk), base + offset(shared.places[row]) + chunk * EACH, row < rows);
      }
    }
    copy_async_commit();
  }
};

}  // namespace kiln
