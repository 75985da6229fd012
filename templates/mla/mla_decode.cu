// Computes attention of a few tokens of each request to its paged latent cache on Hopper (multi-head latent attention).
// o = softmax(q k^T) v, where k is a row of the cache, and v its first 512 elements.
//
// The work list gives each block tiles, or parts of tiles. A tile has 64 packed rows. A row is a query token and a head, as in
// attn_prefill. The heads are divided into groups of GROUP, at most 64, which the work list takes for kv heads. Blocks that run
// together have the same kv tokens for different groups, so the L2 serves all but one of them.
//
// A block has three warpgroups. The last one loads kv blocks of 64 tokens into two stages: by TMA, or through its registers
// where it has to widen fp8 codes. The other two compute (mla/latent_tile.cuh). Parts of a tile meet in the workspace, and the blocks
// that are done merge them together (mla/parts.cuh).
#include "kiln/pdl.cuh"
#include "mla/latent_tile.cuh"
#include "mla/load_pages.cuh"
#include "mla/load_rows.cuh"
#include "mla/parts.cuh"

namespace kiln {

template <typename T, typename Tiles>
struct MlaShared {
  LatentStages<T> stages;
  // Warps of the loader are ahead, so each of them goes through the block's tiles by itself.
  Tiles tiles, loader_tiles[4];
  MergeShare merge;  // of the current tile
};

// Begins to copy 64 rows of q to panels. `q` is the first row of the request and group, which has `rows` packed rows. Rows from
// `rows` on become zeros. 256 threads call it.
template <int GROUP, typename T>
__device__ __forceinline__ void copy_queries(Panel<T, 64>* panels, const T* q, i64 stride, i64 stride_head,
                                             i32 first_row, i32 rows) {
  const int line = threadIdx.x / 8, chunk = threadIdx.x % 8;
#pragma unroll
  for (int r = 0; r < 64; r += 32) {
    const int at = r + line;
    const PackedRow<GROUP> row(min(first_row + at, rows - 1));
    const T* const from = q + row.token * stride + row.head * stride_head + chunk * 8;
    const u32 to = shared_address(panels) + at * 128 + (chunk ^ at % 8) * 16;
#pragma unroll
    for (int i = 0; i < Latent::PANELS; ++i)
      copy_async_or_zero(to + i * 64 * 128, from + i * 64, first_row + at < rows);
  }
}

template <typename T, typename KV, int HEADS, int GROUP, bool CAUSAL>
__global__ void __launch_bounds__(384, 1)
    mla_decode(const __grid_constant__ TensorMap map, T* o, const T* q, const KV* kv_cache,
               const i32* kv_indices, i32* plan, f32* workspace, i32 workers, i32 page_size, i64 stride_o,
               i64 stride_o_head, i64 stride_q, i64 stride_q_head, i64 stride_page, i64 stride_slot,
               f32 sm_scale, f32* lse, i32 tokens) {
  constexpr int ROWS = 64, BLOCK = Latent::BLOCK, LOADER = 256;  // the number of the first thread that loads
  // Barriers of both computing warpgroups, and of the one that loads. LatentTile has barriers 2 and 3.
  constexpr int BOTH = 1, LOADERS = 4;
  using Tiles = AttentionTiles<ROWS, BLOCK, GROUP, CAUSAL, false>;
  using Row = PackedRow<GROUP>;
  // Both halves of the columns of a row, as if they were two rows.
  using Result = AttentionTile<T, Latent::VALUES / 2, Latent::VALUES / 2, 2 * ROWS, BLOCK, 8>;
  extern __shared__ __align__(1024) u8 bytes[];
  using Shared = MlaShared<T, Tiles>;
  static_assert(sizeof(Shared) <= 3 * 64 * 2 * Latent::KEYS + 4096,
                "SMEM of the manifest must have room for it");
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const AttentionPlan work{plan, workers};

  work.prefetch(blockIdx.x);
  if (threadIdx.x == 0) shared.stages.init(same<KV, T> ? 1 : 4);
  if (threadIdx.x == LOADER) tma_prefetch(map);
  const bool fits = work.fits();
  pdl_wait();
  {
    const AttentionShare share = work.share(blockIdx.x, fits);
    constexpr u32 MADE_FOR = attention_made_for(ROWS, BLOCK, GROUP, CAUSAL);
    if (work.differs(MADE_FOR, HEADS / GROUP, -1)) {
      work.refuse(MADE_FOR, HEADS / GROUP, -1);
      return clear_results<Latent::VALUES>(o, lse, tokens, HEADS, stride_o, stride_o_head);
    }
    if (threadIdx.x == 0) shared.tiles.begin(work, share);
    if (threadIdx.x >= LOADER && threadIdx.x % 32 == 0)
      shared.loader_tiles[threadIdx.x / 32 % 4].begin(work, share);
  }
  __syncthreads();

  // A launch gives each of 384 threads 168 registers, so the three numbers of registers may add up to 504.
  constexpr int LOADS_WITH = same<KV, T> ? 40 : 104, COMPUTES_WITH = (504 - LOADS_WITH) / 2;
  if (threadIdx.x >= LOADER) {
    give_registers_to<LOADS_WITH>();
    if constexpr (same<KV, T>) {
      const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
      load_pages(shared.stages, shared.loader_tiles[warp], warp, map, work, kv_indices, page_size);
    } else {
      load_rows<LOADERS>(shared.stages, shared.loader_tiles[0], work, reinterpret_cast<const u8*>(kv_cache),
                         kv_indices, page_size, stride_page, stride_slot);
    }
    return;
  }

  take_registers_to<COMPUTES_WITH>();
  const int side = warpgroup(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const f32 scale = sm_scale * LOG2_E;
  Tiles& tiles = shared.tiles;
  // Loads of fp8 rows leave too few registers for operands.
  LatentTile<T, same<KV, T>> own(shared.stages, side);
  while (true) {
    sync_threads(BOTH, 256);  // no thread needs the previous tile any more
    if (threadIdx.x == 0) tiles.next(work, -1);
    sync_threads(BOTH, 256);
    if (!tiles.any()) return;
    const AttentionItem item = tiles.now;
    const i32 first_row = item.first_row + warp % 4 * 16, rows = item.qo_len * GROUP,
              ahead = item.kv_len - item.qo_len, first_head = item.kv_head * GROUP;

    copy_queries<GROUP>(shared.stages.q, q + item.qo_begin * stride_q + first_head * stride_q_head, stride_q,
                        stride_q_head, item.first_row, rows);
    copy_async_commit();
    copy_async_wait<0>();
    fence_async_shared();
    sync_threads(BOTH, 256);

    // Turns products into logits, of the kv block that begins at `kv`. Returns whether a row has outgrown its shift.
    const auto make_logits = [&](i32 kv) {
      if (item.kv_end - kv < BLOCK || (CAUSAL && kv + BLOCK - 1 > Row(first_row).token + ahead)) {
        own.template mask<false>([&](int h) {
          const Visible sees =
              visible<CAUSAL, false>(Row(first_row + h * 8 + lane / 4).token, item.qo_len, item.kv_len, -1);
          return Visible{sees.first, min(sees.last, item.kv_end - 1) - kv};
        });
      }
      return own.outgrown(scale);
    };
    own.clear();
    own.hold_queries();
    own.multiply(item.kv_begin, item.kv_end, scale, make_logits);
    own.template join_sums<BOTH>();
    const bool is_last = tiles.let_next_in();
    if (is_last) pdl_launch_dependents();

    T* const to = o + item.qo_begin * stride_o + first_head * stride_o_head;
    const auto emit_lse = [&](u32 r, f32 x) {
      const Row row(item.first_row + r);
      if (lse && item.first_row + static_cast<i32>(r) < rows)
        lse[static_cast<i64>(item.qo_begin + row.token) * HEADS + first_head + row.head] = x;
    };
    const bool any = first_row < rows;  // a warp whose rows are all padding has no results
    if (item.whole()) {
      if (!any) continue;
      Result result;
#pragma unroll
      for (int i = 0; i < Latent::VALUES / 4; ++i) result.o[0][i / 4][i % 4] = own.sums[i];
      result.row[0][0] = own.row[0];
      result.row[0][1] = own.row[1];
      // Results go through the memory of q, where each warp has a place of its own.
      u8* const staging = reinterpret_cast<u8*>(shared.stages.q) + warp * 16 * Latent::VALUES;
      result.stage(staging, [&](u32 r, f32 x) {
        if (side == 0) emit_lse(warp % 4 * 16 + r, x);
      });
      __syncwarp();
      Result::template store_rows<GROUP>(to + side * Latent::VALUES / 2, stride_o, stride_o_head, staging,
                                         first_row, rows);
      __syncwarp();
    } else {
      using Parts = LatentParts<T>;
      static_assert(4 * Parts::EXCHANGED * Parts::THREADS <= sizeof(shared.stages.q),
                    "the merge goes through the memory of q");
      const Parts parts{workspace};
      if (any) parts.save(item.slot(), own.sums, own.row);
      sync_threads(BOTH, 256);
      // Without fresh(), values derived from `workers` would stay in registers through the products.
      MergeCounter counter{AttentionPlan{plan, fresh(workers)}.counter(item)};
      if (threadIdx.x == 0) shared.merge = counter.arrive(item, is_last);
      sync_threads(BOTH, 256);
      const MergeShare share = shared.merge;
      const auto put = [&](i32 r, i32 column, const Vec<T, 8>& x) {
        const Row row(item.first_row + r);
        if (item.first_row + r < rows)
          store(to + row.token * stride_o + row.head * stride_o_head + column, x);
      };
      if (share.step > 0)
        parts.template merge<BOTH>(item, share, min((rows - item.first_row + 15) / 16, 4),
                                   reinterpret_cast<f32*>(shared.stages.q), emit_lse, put);
      if (threadIdx.x == 0) counter.leave();
    }
  }
}

}  // namespace kiln
