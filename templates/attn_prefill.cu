// Attention of a ragged batch: o = softmax(q k^T) v for tokens that see those of their own request, the query heads of a kv head packed as rows.
//
// A block, one of a grid that never changes, works off its items of the plan: tiles of TILE_ROWS packed rows, or parts of one. k and v come in blocks
// of TILE_KV tokens by cp.async while those before are multiplied; a warp keeps its rows' sums of v in registers, and the weights go from one product
// to the next without leaving them. Only blocks that a mask cuts are masked. The last of a tile's parts merges them all.
#include "kiln/attention_plan.cuh"
#include "kiln/attention_tile.cuh"
#include "kiln/logits.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

template <typename T, int D, int DV, int GROUP, bool CAUSAL, bool WINDOW, bool SOFT_CAP, bool ALIBI, bool MASK, int TILE_ROWS, int TILE_KV, int WARPS,
          int STAGES, int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    attn_prefill(T* o, const T* q, const T* k, const T* v, i32* plan, f32* workspace, i32 workers, i32 kv_heads, i64 stride_o, i64 stride_o_head,
                 i64 stride_q, i64 stride_q_head, i64 stride_k, i64 stride_k_head, i64 stride_v, i64 stride_v_head, f32 sm_scale, f32* lse, f32 soft_cap,
                 i32 window_left, const f32* alibi_slopes, const u8* mask, const i32* mask_indptr) {
  using Tile = AttentionTile<T, D, DV, TILE_ROWS, TILE_KV, WARPS>;
  extern __shared__ __align__(1024) u8 shared[];
  __shared__ i32 last_part;
  constexpr int LINES = 4 * WARPS;  // rows of k that the block copies at once, 8 threads a row, in steps of 128 bytes
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int line = threadIdx.x / 8, chunk = threadIdx.x % 8;
  const u32 q_shared = shared_address(shared), k_shared = q_shared + Tile::Q_BYTES, q_warp = q_shared + warp * Tile::WARP_ROWS * 2 * D;
  const LogitTransform<SOFT_CAP, ALIBI> transform(softmax_scale(sm_scale, D), soft_cap);
  const f32 scale = transform.scale();
  const AttentionPlan work{plan, workers};
  const AttentionSlots<TILE_ROWS, DV> slots{workspace, workers};

  pdl_wait();
  for (i32 i = work.begin(blockIdx.x); i < work.end(blockIdx.x); ++i) {
    const AttentionItem item = work.item(i);
    const int first_row = item.first_row + warp * Tile::WARP_ROWS;  // of the warp
    const int rows = item.qo_len * GROUP;

    // Each warp its rows of q.
    {
      const T* q_item = q + item.qo_begin * stride_q + item.kv_head * GROUP * stride_q_head + chunk * 8;
#pragma unroll 2
      for (int r = 0; r < Tile::WARP_ROWS; r += 4) {
        const int row = first_row + r + lane / 8, own = min(row, rows - 1);
        const T* const from = q_item + own / GROUP * stride_q + own % GROUP * stride_q_head;
#pragma unroll
        for (int c = 0; c < D / 8; c += 8) copy_async_or_zero(q_warp + Tile::RowOfK::offset(r + lane / 8, chunk + c), from + c * 8, row < rows);
      }
    }
    const T* k_next = k + (item.kv_base + item.kv_begin + line) * stride_k + item.kv_head * stride_k_head + chunk * 8;
    const T* v_next = v + (item.kv_base + item.kv_begin + line) * stride_v + item.kv_head * stride_v_head + chunk * 8;
    const auto copy_k = [&](int stage, int left) {
#pragma unroll
      for (int r = 0; r < TILE_KV; r += LINES, k_next += LINES * stride_k) {
#pragma unroll
        for (int c = 0; c < D / 8; c += 8)
          copy_async_or_zero(k_shared + stage * (Tile::K_BYTES + Tile::V_BYTES) + Tile::RowOfK::offset(line, chunk) + r * 2 * D + c * 16,
                             k_next + c * 8, r + line < left);
      }
    };
    const auto copy_v = [&](int stage, int left) {
#pragma unroll
      for (int r = 0; r < TILE_KV; r += LINES, v_next += LINES * stride_v) {
#pragma unroll
        for (int c = 0; c < DV / 8; c += 8)
          copy_async_or_zero(k_shared + stage * (Tile::K_BYTES + Tile::V_BYTES) + Tile::K_BYTES + Tile::RowOfV::offset(line, chunk) + r * 2 * DV + c * 16,
                             v_next + c * 8, r + line < left);
      }
    };

    Tile tile;
    tile.clear();
    __syncthreads();  // nobody reads the item before any more
    copy_k(0, item.kv_end - item.kv_begin);
    if constexpr (STAGES > 1) copy_v(0, item.kv_end - item.kv_begin);
    copy_async_commit();

    int stage = 0;
#pragma unroll 1
    for (i32 kv = item.kv_begin; kv < item.kv_end; kv += TILE_KV) {
      const u32 k_block = k_shared + stage * (Tile::K_BYTES + Tile::V_BYTES), v_block = k_block + Tile::K_BYTES;
      f32 s[Tile::M][Tile::N][4];
      copy_async_wait<0>();
      __syncthreads();
      if constexpr (STAGES > 1) {
        stage ^= 1;
        if (kv + TILE_KV < item.kv_end) {
          copy_k(stage, item.kv_end - kv - TILE_KV);
          copy_v(stage, item.kv_end - kv - TILE_KV);
        }
        copy_async_commit();
        tile.multiply(s, q_warp, k_block);
      } else {
        copy_v(0, item.kv_end - kv);
        copy_async_commit();
        tile.multiply(s, q_warp, k_block);
        copy_async_wait<0>();
        __syncthreads();
        if (kv + TILE_KV < item.kv_end) copy_k(0, item.kv_end - kv - TILE_KV);
        copy_async_commit();
      }

      if constexpr (!transform.IDENTITY) {
#pragma unroll
        for (int m = 0; m < Tile::M; ++m) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int own = first_row + tile.row_of(m, h), head = item.kv_head * GROUP + own % GROUP;
            const f32 slope = ALIBI ? load_one(alibi_slopes + head) * transform.unit : 0.0f;
            const f32 bias = slope * static_cast<f32>(kv + tile.column_of(0) - own / GROUP);
#pragma unroll
            for (int n = 0; n < Tile::N; ++n) {
#pragma unroll
              for (int j = 2 * h; j < 2 * h + 2; ++j) s[m][n][j] = transform(s[m][n][j], bias + slope * static_cast<f32>(8 * n + j % 2));
            }
          }
        }
      }

      const auto own_first = first_row / GROUP + item.kv_len - item.qo_len, own_last = (first_row + Tile::WARP_ROWS - 1) / GROUP + item.kv_len - item.qo_len;
      const bool cut = MASK || kv + TILE_KV > item.kv_end || (CAUSAL && kv + TILE_KV - 1 > own_first) || (WINDOW && window_left >= 0 && kv < own_last - window_left);
      if (cut) {
#pragma unroll
        for (int m = 0; m < Tile::M; ++m) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int qo = min((first_row + tile.row_of(m, h)) / GROUP, item.qo_len - 1);
            const Visible sees = visible<CAUSAL && !MASK, WINDOW>(qo, item.qo_len, item.kv_len, window_left);
            u64 bits = 0;
            if constexpr (MASK) bits = MaskBits{mask + static_cast<i32>(load<1>(mask_indptr + item.request).word[0]), item.kv_len}.template window<TILE_KV>(qo, kv) >> tile.column_of(0);
#pragma unroll
            for (int n = 0; n < Tile::N; ++n) {
#pragma unroll
              for (int j = 0; j < 2; ++j) {
                if (!sees(kv + tile.column_of(n) + j) || (MASK && !(bits >> (8 * n + j) & 1))) s[m][n][2 * h + j] = -infinity();
              }
            }
          }
        }
      }

      tile.rescale(s, scale);
      tile.accumulate(s, scale, v_block);
    }
    if (i + 1 == work.end(blockIdx.x)) pdl_launch_dependents();
    copy_async_wait<0>();  // an item without kv has begun to copy, too
    tile.finish();

    const AttentionItem done = work.item(i);  // read again: nothing of it has occupied registers meanwhile
    const int done_row = done.first_row + warp * Tile::WARP_ROWS, done_rows = done.qo_len * GROUP;
    u8* const staging = shared + warp * Tile::WARP_ROWS * 2 * D;
    const auto emit = [&](int r, f32 x) {
      const int own = done_row + r;
      if (lse && own < done_rows) lse[static_cast<i64>(done.qo_begin + own / GROUP) * (kv_heads * GROUP) + done.kv_head * GROUP + own % GROUP] = x;
    };
    __syncwarp();
    if (done.whole()) {
      tile.stage(staging, emit);
    } else {
      tile.save(slots.o(done.slot()), slots.lse(done.slot()) + warp * Tile::WARP_ROWS);
      if (!work.arrive(done, &last_part)) continue;
      tile.merge(slots.o(done.first_slot), slots.lse(done.first_slot) + warp * Tile::WARP_ROWS, done.parts, staging, emit);
    }
    __syncwarp();
    T* const o_item = o + done.qo_begin * stride_o + done.kv_head * GROUP * stride_o_head + chunk * 8;
#pragma unroll 2
    for (int r = 0; r < Tile::WARP_ROWS; r += 4) {
      const int own = done_row + r + lane / 8;
      if (own < done_rows) {
#pragma unroll
        for (int c = 0; c < DV / 8; c += 8)
          store(o_item + own / GROUP * stride_o + own % GROUP * stride_o_head + c * 8,
                load_shared<8>(reinterpret_cast<const T*>(staging + Tile::RowOfV::offset(r + lane / 8, chunk + c))));
      }
    }
    __syncwarp();
  }
}

}  // namespace kiln
