// Computes attention of one token of each request, or of a few tokens, to the paged keys and values up to
// that token.
//
// The work list gives each block items. An item is a kv head of a request's token, with all of its kv tokens
// or a part of them. The q heads that share a kv head are the columns of both products. The speed of memory
// is the limit, so no warp waits if it can copy:
// - The warps of a block take turns at an item's kv tokens.
// - Each warp has its own ring of copies, which runs ahead into the next items.
// - No warp waits for the others at the end of an item. One warp joins the results of all warps.
//
// Parts of a token meet in the workspace. The block that writes the last part merges all parts.
#include "attention/decode/join.cuh"
#include "attention/decode/pace.cuh"
#include "attention/decode/paged_ring.cuh"
#include "attention/decode/queries.cuh"
#include "attention/decode/rows.cuh"
#include "attention/work_list.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

// The dynamic shared memory of a block of attn_decode_paged.
template <typename T, typename KV, int D, int DV, int GROUP, int ROWS, int STAGES, int WARPS, int BUFFERS>
struct DecodeShared {
  using Ring = PagedRing<T, KV, D, DV, GROUP, ROWS, STAGES, WARPS>;
  typename Ring::Shared ring[WARPS];
  DecodeQueries<T, KV, D, GROUP> queries[WARPS];
  DecodeJoin<DV, GROUP, WARPS, BUFFERS> join;
  Barrier meeting;
  typename Ring::Items items;
  i32 last;
};

// Takes the place of the attention where the list is for another launch. It is a function of its own, because inlined it
// would make the widest kernel spill registers.
template <typename T, int DV>
__device__ __noinline__ void refuse(AttentionPlan work, u32 made_for, T* o, f32* lse, i32 tokens,
                                    i32 kv_heads, i32 heads, i32 window_left, i64 stride_o,
                                    i64 stride_o_head) {
  work.refuse(made_for, kv_heads, window_left);
  clear_results<DV>(o, lse, tokens, heads, stride_o, stride_o_head);
}

// A block with at least LONG kv tokens makes the next launch wait for this launch's end. A launch that is let in
// earlier takes the SMs as they become free. The SMs that it leaves out are then left to chance, and it loses 2 %
// (decode after decode; see `workers` in the manifest).
template <typename T, typename KV, int D, int DV, int GROUP, bool SOFT_CAP, bool ALIBI, int ROWS, int STAGES,
          int WARPS, int BUFFERS, int BLOCKS, bool PACE, int LONG>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    attn_decode_paged(T* o, const T* q, const KV* k_cache, const KV* v_cache, const i32* kv_indices,
                      i32* plan, f32* workspace, i32 workers, i32 kv_heads, i32 page_size, i64 stride_o,
                      i64 stride_o_head, i64 stride_q, i64 stride_q_head, i64 stride_k_page,
                      i64 stride_k_slot, i64 stride_k_head, i64 stride_v_page, i64 stride_v_slot,
                      i64 stride_v_head, f32 sm_scale, f32* lse, f32 soft_cap, i32 window_left,
                      const f32* alibi_slopes, const f32* k_scale, const f32* v_scale, i64 stride_scale,
                      i32 o_tokens) {
  using Shared = DecodeShared<T, KV, D, DV, GROUP, ROWS, STAGES, WARPS, BUFFERS>;
  using Queries = DecodeQueries<T, KV, D, GROUP>;
  using Ring = typename Shared::Ring;
  using Rows = DecodeRows<T, KV, D, DV, GROUP, ROWS, SOFT_CAP, ALIBI>;
  constexpr int THREADS = 32 * WARPS;
  constexpr i32 TURN = Ring::TURN;
  extern __shared__ __align__(128) u8 dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  typename Ring::Shared& own = shared.ring[warp];
  Queries& queries = shared.queries[warp];
  DecodeJoin<DV, GROUP, WARPS, BUFFERS>& join = shared.join;
  typename Ring::Items& items = shared.items;

  const AttentionPlan work{plan, workers};
  const DecodeParts<DV, GROUP> parts{{workspace, workers}};
  const PagedCache<KV> cache{k_cache,
                             v_cache,
                             kv_indices,
                             page_size,
                             {stride_k_page, stride_k_slot, stride_k_head},
                             {stride_v_page, stride_v_slot, stride_v_head}};
  const PackedQueries<T> all_queries{q, stride_q, stride_q_head};
  // The prefetch comes first, because the work list lies in device memory, which is far away.
  work.prefetch(blockIdx.x);
  const bool fits = work.fits();
  pdl_wait();
  const AttentionShare share = work.share(blockIdx.x, fits);
  const i32 items_begin = share.begin, items_end = share.end;
  AttentionItem item = share.first;
  // The ring, the barriers and the queries are prepared while these loads are under way.
  Ring ring(cache, all_queries, work, items, own, warp, lane, window_left);
  if (thread == 0) join.init(), shared.meeting.init(WARPS);
  queries.init(lane);
  constexpr u32 MADE_FOR = attention_made_for(GROUP, TURN, GROUP, true);
  if (work.differs(MADE_FOR, kv_heads, window_left)) {
    return refuse<T, DV>(work, MADE_FOR, o, lse, o_tokens, kv_heads, kv_heads * GROUP, window_left, stride_o,
                         stride_o_head);
  }
  if (items_begin == items_end) return pdl_launch_dependents();
  const Vec<i32, 4> third = items.ask(work, items_begin, items_end);
  ring.begin(item, items_begin);
  // With `enough`, the copies begin before the items after the first item have been loaded.
  const bool enough = ring.fill_needs_only(item);
  const auto keep = [&] {
    items.keep(third, item, items_begin, items_end);
    __syncthreads();  // shows all threads the items and the barriers
  };
  if (!enough) keep();
  ring.fill();
  if (enough) keep();
  const u32 query_place = queries.place(lane), key_place = Ring::Keys::key_place(lane),
            value_place = Ring::Values::value_place(lane);
  DecodePace<PACE> pace(shared.meeting, work);
  int stage = 0;

  i32 tokens = 0;  // kv tokens of the items so far, counted up to LONG
#pragma unroll 1
  for (i32 i = items_begin;; item = items(++i, work)) {
    const DecodeRange range(item, GROUP, window_left);
    const i32 begin = range.begin + warp * ROWS;
    const f32 k_unit = load_scale<KV>(k_scale, stride_scale, item.kv_head) * product_unit<KV>();
    Rows rows(typename Rows::Logits(softmax_scale(sm_scale, D) * k_unit, soft_cap), queries.column, lane);
    if (begin < range.end) {
      ring.wait();
      queries.take(own.queries[stage], lane);
      if (ALIBI)
        queries.take_slopes(alibi_slopes + static_cast<i64>(item.kv_head) * GROUP, rows.logits.unit,
                            item.first_row / GROUP, lane);
      __syncwarp();
    }

    i32 at = begin;
#pragma unroll 1
    for (; at < range.end; at += TURN) {
      ring.wait();
      rows.template multiply_keys<Queries>(shared_address(own.keys[stage]) + key_place, query_place);
      __syncwarp();  // all lanes have read the keys
      ring.copy_keys(stage);
      rows.weigh(at, range.end, lane);
      ring.wait();
      rows.multiply_values(shared_address(own.values[stage]) + value_place);
      __syncwarp();
      ring.copy_values(stage);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
      pace.step(work);
    }
    // If this holds, only other warps have tokens in the item's last turn.
    if (at - warp * ROWS < range.end) pace.step(work);

    // The item is loaded again. Holding it through the steps would take registers.
    if (!Ring::ROOMY) item = items(i, work);
    const i32 nth = i - items.begin;
    const bool last = i + 1 == items.end;
    tokens = min(tokens + max(range.end - range.begin, 0), LONG);
    if (last && tokens < LONG) pdl_launch_dependents();
    // A token's first part is the last item of its block, and the other parts are the first items of their
    // blocks. The first part therefore tends to be written last. Only its block looks whether the others are
    // there. Any other part may be the last, too, but looking takes a while.
    const bool settles =
        last && thread == 0 && !item.whole() && item.part == 0 && work.others_are_there(item);
    join.put(rows, typename Ring::Values{}, nth, warp, lane);
    if (last && thread == 0) shared.last = settles;
    // One warp joins an item. The block's last item is an exception: all warps join it together.
    // - If there are two buffers, the warp first does its part of the next item. The join of that item waits
    //   for this part, too.
    // - A part of a token, which can be the block's first item, is joined at once. Its join takes a while,
    //   because it also counts and perhaps merges parts. It would otherwise be left for the end.
    const bool at_once = !last && !item.whole();
    const i32 due = nth - (at_once ? 0 : BUFFERS - 1);
    const bool mine = due >= 0 && due % WARPS == warp && !(last && due == nth) &&
                      (at_once || nth != 1 || BUFFERS == 1 || items(items.begin, work).whole());
#pragma unroll 1
    for (i32 which = mine ? due : nth; (mine && which == due) || which < nth + last; ++which) {
      const bool by_all = last && which == nth;
      const AttentionItem done = by_all ? item : items(items.begin + which, work);
      const i64 token = all_queries.token(done, GROUP), first_head = static_cast<i64>(done.kv_head) * GROUP;
      const f32 v_unit = load_scale<KV>(v_scale, stride_scale, done.kv_head) * product_unit<KV>();
      T* const o_item = o + token * stride_o + first_head * stride_o_head;
      const auto write = [&](int row, int column, const f32(&v)[4]) {
        store(o_item + row * stride_o_head + column, narrow<T>(v));
      };
      const auto write_lse = [&](int row, f32 value) {
        if (lse) lse[token * (kv_heads * GROUP) + first_head + row] = value;
      };
      const auto joined = join.of(which);
      const int member = by_all ? thread : lane, members = by_all ? THREADS : 32;
      if (by_all) {
        __syncthreads();
      } else {
        join.wait(which);
      }
      const bool settled = by_all && shared.last;  // this block merges, and no other block reads its part
#pragma unroll 1
      for (int j = member; j < GROUP * DV / 4 && !settled; j += members) {
        const int row = j / (DV / 4), column = j % (DV / 4) * 4;
        const auto of = joined.column(row);
        f32 v[4];
        of.mean(column, v_unit, v);
        if (done.whole()) {
          write(row, column, v);
          if (column == 0) write_lse(row, of.lse());
        } else {
          store(parts.row(done.slot(), row) + column, narrow<f32>(v));
          if (column == 0) parts.save_sum(done.slot(), row, of.shift, of.sum);
        }
      }
      if (settled && thread == 0) work.settle(done);
      if (!done.whole() && (settled || (by_all ? work.arrive(done, &shared.last) : work.arrive_warp(done))))
        parts.merge(done, joined, v_unit, member, members, write, write_lse);
      if (!by_all) join.release(which);
    }
    if (last) return pdl_launch_dependents();
  }
}

}  // namespace kiln
