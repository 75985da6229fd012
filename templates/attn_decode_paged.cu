// Attention of one token of each request (or of a few) to the paged keys and values of all tokens before it.
//
// The plan gives each block a list of items: a kv head of a request, with all of its kv tokens or a part of
// them. The warps of a block take turns at an item's tokens, each with a ring of copies of its own that runs
// ahead into the next items, since what limits is the memory. The q heads which share the kv head are the
// columns of both products. Parts of a token meet in the workspace; the block that comes last merges them.
#include "kiln/attention_plan.cuh"
#include "kiln/decode_join.cuh"
#include "kiln/decode_queries.cuh"
#include "kiln/decode_rows.cuh"
#include "kiln/paged_ring.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

// What a block of attn_decode_paged has in dynamic shared memory.
template <typename T, typename KV, int D, int DV, int GROUP, int ROWS, int STAGES, int WARPS>
struct DecodeShared {
  typename PagedRing<KV, D, DV, ROWS, STAGES>::Shared ring[WARPS];
  DecodeQueries<T, KV, D, GROUP, WARPS> queries;
  DecodeJoin<DV, GROUP, WARPS> join;
  i32 last;
};

template <typename T, typename KV, int D, int DV, int GROUP, bool SOFT_CAP, bool ALIBI, int ROWS, int STAGES, int WARPS, int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    attn_decode_paged(T* o, const T* q, const KV* k_cache, const KV* v_cache, const i32* kv_indices, i32* plan, f32* workspace, i32 workers, i32 kv_heads,
                      i32 page_size, i64 stride_o, i64 stride_o_head, i64 stride_q, i64 stride_q_head, i64 stride_k_page, i64 stride_k_slot, i64 stride_k_head,
                      i64 stride_v_page, i64 stride_v_slot, i64 stride_v_head, f32 sm_scale, f32* lse, f32 soft_cap, i32 window_left, const f32* alibi_slopes,
                      const f32* k_scale, const f32* v_scale, i64 stride_scale) {
  using Shared = DecodeShared<T, KV, D, DV, GROUP, ROWS, STAGES, WARPS>;
  using Ring = PagedRing<KV, D, DV, ROWS, STAGES>;
  using Rows = DecodeRows<T, KV, D, DV, GROUP, ROWS, SOFT_CAP, ALIBI>;
  constexpr int THREADS = 32 * WARPS;
  extern __shared__ __align__(128) u8 dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;

  const AttentionPlan work{plan, workers};
  const DecodeParts<DV, GROUP, THREADS> parts{{workspace, workers}};
  const PagedCache<KV> cache{
      k_cache, v_cache, kv_indices, page_size, {stride_k_page, stride_k_slot, stride_k_head}, {stride_v_page, stride_v_slot, stride_v_head}};
  work.prefetch();
  pdl_wait();
  const i32 items_begin = work.begin(blockIdx.x), items_end = work.end(blockIdx.x);
  work.require(attention_made_for(GROUP, ROWS * WARPS, GROUP, true), kv_heads, window_left);
  Ring ring(cache, work, shared.ring[warp], warp, WARPS, lane, GROUP, window_left, items_begin, items_end);
  int stage = 0;

#pragma unroll 1
  for (i32 i = items_begin; i < items_end; ++i) {
    const AttentionItem item = work.item(i);
    const DecodeRange range(item, GROUP, window_left);
    const i32 own_token = item.first_row / GROUP;
    const i64 token = item.qo_begin + own_token, first_head = static_cast<i64>(item.kv_head) * GROUP;
    const f32 k_unit = load_scale<KV>(k_scale, stride_scale, item.kv_head) * product_unit<KV>();
    const f32 v_unit = load_scale<KV>(v_scale, stride_scale, item.kv_head) * product_unit<KV>();
    shared.queries.load_from(q + token * stride_q + first_head * stride_q_head, stride_q_head, warp, lane);
    __syncthreads();
    Rows rows(typename Rows::Logits(softmax_scale(sm_scale, D) * k_unit, soft_cap), own_token, shared.queries.factor, alibi_slopes + first_head, lane);

    const u32 queries = shared.queries.place(lane), key_place = Ring::Keys::key_place(lane), value_place = Ring::Values::value_place(lane);
#pragma unroll 1
    for (i32 at = range.begin + warp * ROWS; at < range.end; at += WARPS * ROWS) {
      ring.wait();
      rows.template multiply_keys<decltype(shared.queries)>(shared_address(shared.ring[warp].keys[stage]) + key_place, queries);
      __syncwarp();  // all lanes have read the keys
      ring.copy_keys(stage);
      rows.weigh(at, range.end, lane);
      ring.wait();
      rows.multiply_values(shared_address(shared.ring[warp].values[stage]) + value_place);
      __syncwarp();
      ring.copy_values(stage);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    if (i + 1 == items_end) pdl_launch_dependents();
    shared.join.join(rows, typename Ring::Values{}, v_unit, warp, lane);

    T* const o_item = o + token * stride_o + first_head * stride_o_head;
    const auto write_lse = [&](int row, f32 value) {
      if (lse) lse[token * (kv_heads * GROUP) + first_head + row] = value;
    };
    if (thread < GROUP && item.whole()) write_lse(thread, shared.join.lse(thread));
    if (thread < GROUP && !item.whole()) {
      const f32 shift = shared.join.largest(thread);
      parts.save_sum(item.slot(), thread, shift, shared.join.total(thread, shift));
    }
#pragma unroll 1
    for (int j = thread; j < GROUP * DV / 8; j += THREADS) {
      const int row = j / (DV / 8), column = j % (DV / 8) * 8;
      f32 v[8];
      shared.join.mean(row, column, v);
      if (item.whole()) {
        store(o_item + row * stride_o_head + column, narrow<T>(v));
      } else {
        store(parts.row(item.slot(), row) + column, narrow<f32>(v));
      }
    }
    if (!item.whole() && work.arrive(item, &shared.last)) {
      parts.merge(
          item, [&](int row, int column, const f32(&v)[4]) { store(o_item + row * stride_o_head + column, narrow<T>(v)); }, write_lse);
    }
  }
}

}  // namespace kiln
