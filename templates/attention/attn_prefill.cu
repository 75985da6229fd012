// Computes attention of a batch, ragged or paged: o = softmax(q k^T) v. A token sees only tokens of its own request.
//
// The q heads that share a kv head are packed as rows. The grid never changes: each block works through its
// items of the work list. An item is a run of tiles of TILE_ROWS packed rows, or a part of one tile. cp.async
// copies k and v in kv blocks of TILE_KV tokens, while the block multiplies the kv blocks before them. A warp
// keeps its rows' sums of v in registers, and the weights stay in registers from one product to the next.
// Causal and window masks are applied only to the kv blocks that they cut. A custom mask is applied to all kv
// blocks. The block that finishes the last part of a tile merges all parts.
#include "attention/logits.cuh"
#include "attention/prefill/page_copy.cuh"
#include "attention/prefill/tile.cuh"
#include "attention/work_list.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

template <typename T, int D, int DV, int GROUP, bool CAUSAL, bool WINDOW, bool SOFT_CAP, bool ALIBI,
          bool MASK, bool PAGED, bool SINK, int TILE_ROWS, int TILE_KV, int WARPS, int STAGES, int BLOCKS,
          int FRONT>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    attn_prefill(T* o, const T* q, const T* k, const T* v, i32* plan, f32* workspace, i32 workers,
                 i32 kv_heads, i64 stride_o, i64 stride_o_head, i64 stride_q, i64 stride_q_head, i64 stride_k,
                 i64 stride_k_head, i64 stride_v, i64 stride_v_head, f32 sm_scale, f32* lse, f32 soft_cap,
                 i32 window_left, const f32* alibi_slopes, const u8* mask, const i32* mask_indptr,
                 const i32* kv_indices, i32 page_size, i64 stride_k_page, i64 stride_v_page, i32 window_right,
                 const f32* sinks, i32 tokens) {
  using Tile = AttentionTile<T, D, DV, TILE_ROWS, TILE_KV, WARPS>;
  using Tiles = AttentionTiles<TILE_ROWS, TILE_KV, GROUP, CAUSAL && !MASK, WINDOW>;
  using Row = PackedRow<GROUP>;
  extern __shared__ __align__(1024) u8 shared[];
  __shared__ Tiles tiles;
  __shared__ i32 last_part;
  __shared__ PageRows<PAGED ? TILE_KV : 1> rows_of_pages;
  const int warp = threadIdx.x / 32;
  u8* const q_rows = shared + warp * Tile::WARP_ROWS * Tile::RowOfK::PITCH;  // the warp's rows of q
  const u32 blocks = shared_address(shared) + Tile::Q_BYTES;                 // STAGES pairs of k and v
  const LogitTransform<SOFT_CAP, ALIBI> transform(softmax_scale(sm_scale, D), soft_cap);
  const AttentionPlan work{plan, workers};

  // If two blocks fit on an SM and there are fewer tiles than SMs, each tile should have an SM for itself.
  // The first workers have these tiles. They are the blocks from FRONT eighths of the grid on. The first
  // blocks of a grid that fills the GPU would share SMs with other blocks of the grid's first half (H200:
  // blocks 0 to 7 with blocks 80 to 87).
  const i32 front = workers * FRONT / 8, block = blockIdx.x,
            worker = block >= front ? block - front : block + workers - front;
  // The prefetch comes first, because the work list lies in device memory, which is far away.
  work.prefetch(worker);
  const bool fits = work.fits();
  pdl_wait();
  {
    const AttentionShare share = work.share(worker, fits);
    const i32 busy = work.busy();
    constexpr u32 MADE_FOR = attention_made_for(TILE_ROWS, TILE_KV, GROUP, CAUSAL && !MASK, true);
    const i32 right = WINDOW && (!CAUSAL || MASK) ? window_right : -1;
    if (work.differs(MADE_FOR, kv_heads, window_left, right)) {
      work.refuse(MADE_FOR, kv_heads, window_left, right);
      return clear_results<DV>(o, lse, tokens, kv_heads * GROUP, stride_o, stride_o_head);
    }
    // The next launch is let in before this launch's end, which saves 0.8 us. It is not let in if two of its
    // blocks would then share an SM. That happens if this launch leaves room on most SMs, but too few free
    // SMs for the next launch's first workers. For prompts of 512 tokens without causality, one after
    // another, a launch then took 22 instead of 18 us.
    const bool lets_in = BLOCKS == 1 || 8 * busy <= 3 * workers || 2 * busy > workers;
    if (threadIdx.x == 0) tiles.begin(work, share, lets_in);
  }
  while (true) {
    __syncthreads();  // no warp needs the previous tile, or its kv blocks, any more
    if (threadIdx.x == 0) tiles.next(work, window_left, window_right);
    __syncthreads();
    if (!tiles.any()) return;
    Tile tile;
    {
      const AttentionItem item = tiles.now;
      const i32 first_row = item.first_row + warp * Tile::WARP_ROWS, ahead = item.kv_len - item.qo_len;
      Tile::template copy_rows<GROUP>(shared_address(q_rows),
                                      q + item.qo_begin * stride_q + item.kv_head * GROUP * stride_q_head,
                                      stride_q, stride_q_head, first_row, item.qo_len * GROUP);
      // The tokens of ragged k and v lie one after the other. look_up() finds the places of tokens in pages.
      const i32 ragged = PAGED ? 0 : item.kv_base + item.kv_begin;
      BlockCopy<T, D, TILE_KV, WARPS> rows_of_k(k + ragged * stride_k + item.kv_head * stride_k_head,
                                                stride_k);
      BlockCopy<T, DV, TILE_KV, WARPS> rows_of_v(v + ragged * stride_v + item.kv_head * stride_v_head,
                                                 stride_v);
      const auto look_up = [&](i32 kv) {
        if constexpr (PAGED)
          rows_of_pages.look_up(kv_indices + item.kv_base, page_size, kv, item.kv_end - kv);
      };
      // Each call copies the next kv block, which begins at token `kv`.
      const auto next_k = [&](u32 to, i32 kv) {
        if constexpr (PAGED)
          copy_pages<D, TILE_KV, WARPS>(to, k + item.kv_head * stride_k_head, stride_k_page, stride_k,
                                        rows_of_pages, kv, item.kv_end - kv);
        else
          rows_of_k(to, item.kv_end - kv);
      };
      const auto next_v = [&](u32 to, i32 kv) {
        if constexpr (PAGED)
          copy_pages<DV, TILE_KV, WARPS>(to, v + item.kv_head * stride_v_head, stride_v_page, stride_v,
                                         rows_of_pages, kv, item.kv_end - kv);
        else
          rows_of_v(to, item.kv_end - kv);
      };
      tile.clear();
      if constexpr (PAGED) {
        look_up(item.kv_begin);
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
      }
      next_k(blocks, item.kv_begin);
      if constexpr (STAGES == 2) next_v(blocks + Tile::K_BYTES, item.kv_begin);
      look_up(item.kv_begin + TILE_KV);
      copy_async_commit();

      u32 k_block = blocks;
#pragma unroll 1
      for (i32 kv = item.kv_begin; kv < item.kv_end; kv += TILE_KV) {
        const i32 left = item.kv_end - kv - TILE_KV;  // tokens after this kv block
        const u32 v_block = k_block + Tile::K_BYTES;
        f32 s[Tile::M][Tile::N][4];
        copy_async_wait<0>();
        __syncthreads();
        if constexpr (STAGES == 2) {
          const u32 other = 2 * blocks + Tile::K_BYTES + Tile::V_BYTES - k_block;
          tile.multiply(s, shared_address(q_rows), k_block);
          // The copies come after the products, because the products then begin earlier.
          if (left > 0) {
            next_k(other, kv + TILE_KV);
            next_v(other + Tile::K_BYTES, kv + TILE_KV);
          }
          look_up(kv + 2 * TILE_KV);
          copy_async_commit();
          k_block = other;
        } else {
          next_v(v_block, kv);
          copy_async_commit();
          tile.multiply(s, shared_address(q_rows), k_block);
          copy_async_wait<0>();
          __syncthreads();
          if (left > 0) next_k(k_block, kv + TILE_KV);
          look_up(kv + 2 * TILE_KV);
          copy_async_commit();
        }

        if constexpr (!transform.IDENTITY) {
          tile.for_rows(s, [&](u32 r, auto each) {
            const Row row(first_row + r);
            const f32 slope =
                ALIBI ? load_one(alibi_slopes + item.kv_head * GROUP + row.head) * transform.unit : 0.0f;
            const f32 bias = slope * static_cast<f32>(kv + static_cast<i32>(Tile::column()) - row.token);
            each([&](f32 x, int column) { return transform(x, bias + slope * static_cast<f32>(column)); });
          });
        }
        u64 bits = 0;  // with MASK: tokens that row threadIdx.x % WARP_ROWS of the warp sees
        if constexpr (MASK) {
          const i32 qo = min(Row(first_row + threadIdx.x % 32 % Tile::WARP_ROWS).token, item.qo_len - 1);
          const Visible sees =
              visible<false, WINDOW>(qo, item.qo_len, item.kv_len, window_left, window_right);
          bits = MaskBits{mask + static_cast<i32>(load<1>(mask_indptr + item.request).word[0]), item.kv_len}
                     .template window<TILE_KV>(qo, kv) &
                 sees.bits(kv);
        }
        const i32 own_first = Row(first_row).token + ahead,
                  own_last = Row(first_row + Tile::WARP_ROWS - 1).token + ahead;
        if (MASK || left < 0 || (CAUSAL && kv + TILE_KV - 1 > own_first) ||
            (WINDOW && window_left >= 0 && kv < own_last - window_left) ||
            (WINDOW && !CAUSAL && window_right >= 0 && kv + TILE_KV - 1 - window_right > own_first)) {
          tile.for_rows(s, [&](u32 r, auto each) {
            if constexpr (MASK) {
              const u64 own = shuffle<TILE_KV>(bits, r) >> Tile::column();
              each([&](f32 x, int column) { return (own >> column & 1) != 0 ? x : -infinity(); });
            } else {
              const Visible sees = visible<CAUSAL, WINDOW>(Row(first_row + r).token, item.qo_len, item.kv_len,
                                                           window_left, window_right);
              const i32 begin = kv + static_cast<i32>(Tile::column()), first = sees.first - begin,
                        last = sees.last - begin;
              each([&](f32 x, int column) {
                return (!WINDOW || column >= first) && column <= last ? x : -infinity();
              });
            }
          });
        }

        tile.rescale(s, transform.scale());
        tile.accumulate(s, transform.scale(), v_block);
      }
    }
    if (tiles.let_next_in()) pdl_launch_dependents();
    copy_async_wait<0>();  // an item without kv tokens has begun copies, too
    __syncwarp();
    tile.finish();

    const AttentionItem& item = tiles.now;
    const i32 first_row = item.first_row + warp * Tile::WARP_ROWS, rows = item.qo_len * GROUP;
    const auto emit_lse = [&](u32 r, f32 x) {
      const Row row(first_row + r);
      if (lse && first_row + static_cast<i32>(r) < rows)
        lse[static_cast<i64>(item.qo_begin + row.token) * (kv_heads * GROUP) + item.kv_head * GROUP +
            row.head] = x;
    };
    // Adds the sink of a row. Only one of a tile's parts may count it, so it comes after their merge.
    const auto add_sink = [&](SoftmaxRow& own, u32 r) {
      if constexpr (SINK)
        return own.add(load_one(sinks + item.kv_head * GROUP + Row(first_row + r).head) * LOG2_E);
      return 1.0f;
    };
    if (item.whole()) {
      if constexpr (SINK) tile.add_sinks(add_sink);
      tile.stage(q_rows, emit_lse);
    } else {
      // Without fresh(), values derived from `workers` would stay in registers through the products.
      const AttentionPlan own{plan, fresh(workers)};
      const typename Tile::Slots slots{workspace, own.workers};
      tile.save(slots, item.slot());
      if (!own.arrive(item, &last_part)) continue;
      tile.merge(slots, item.first_slot, item.parts, q_rows, emit_lse, add_sink);
    }
    __syncwarp();
    Tile::template store_rows<GROUP>(o + item.qo_begin * stride_o + item.kv_head * GROUP * stride_o_head,
                                     stride_o, stride_o_head, q_rows, first_row, rows);
    __syncwarp();
  }
}

}  // namespace kiln
