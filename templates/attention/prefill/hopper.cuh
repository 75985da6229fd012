// Attention on Hopper, ragged or paged, for attn_sm90 and attn_sm90_e4m3: o = softmax(q k^T) v. A token sees only tokens of its
// own request.
//
// Packed rows, the work list and parts of tiles are as in attn_prefill. The grid never changes. The last warpgroup of a block
// loads k and v by TMA, in kv blocks of TILE_KV tokens, into two rings of stages. The others compute 64 rows of a tile each:
// two of them, or three where a thread of three has enough registers. They meet only where parts are merged.
//
// In each step a warpgroup has two products under way: the product of q with the keys of a kv block, and the product of
// the weights of the kv block before with its values. The softmax of the former runs beside the latter. With TURNS the
// warpgroups begin their steps one after the other, so that the softmax of one also runs beside the products of another.
// With two Q_TILES the copy of the next tile's q runs beside the products of a tile.
//
// q, k and v are of T, as o is, or of e4m3. wgmma takes e4m3 only with rows along k, and rows of v are not. So codes of v come
// into a ring of their own, from where a fourth warpgroup widens them to f16, which is exact.
#pragma once
#include "attention/kv_tile.cuh"
#include "attention/logits.cuh"
#include "attention/paged.cuh"
#include "attention/prefill/wgmma_tile.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

// The scales of codes: a value of the tensor is its code times the scale. Each has one value (stride 0) or one for each kv head
// (stride 1), and null means 1.
struct AttentionScales {
  const f32 *q, *k, *v;
  i64 stride;
};

// The warps that load. A warp begins the copies of its lanes one after the other, so the many copies of small pages would take
// one warp longer than the products of a kv block. With pages each panel has a warp of its own, while there are warps.
template <typename KV, int D, int DV, bool PAGED>
struct Loaders {
  using Element = KV;
  static constexpr int K_PANELS = panels_of<KV>(D), V_PANELS = panels_of<KV>(DV);
  static constexpr int WARPS = !PAGED ? 1 : K_PANELS + V_PANELS < 4 ? K_PANELS + V_PANELS : 4;
  static constexpr int OF_K = K_PANELS < WARPS ? K_PANELS : WARPS;  // warps that load panels of k
  static constexpr int OF_V = V_PANELS < WARPS ? V_PANELS : WARPS;

  // Return the first panel of k and of v that a warp loads. The warp also loads each WARPS-th panel after it.
  static __device__ __forceinline__ int first_of_k(int warp) { return warp; }
  static __device__ __forceinline__ int first_of_v(int warp) {
    return (warp + WARPS - K_PANELS % WARPS) % WARPS;
  }
};

// Codes of v that wait for the warps that widen them, their ring, and the tiles of these warps.
template <typename KV, int DV, int TILE_KV, int STAGES, bool WIDENS>
struct NarrowValues {};
template <typename KV, int DV, int TILE_KV, int STAGES>
struct NarrowValues<KV, DV, TILE_KV, STAGES, true> {
  Panel<KV, TILE_KV> values[STAGES][panels_of<KV>(DV)];
};
template <int STAGES, typename Tiles, bool WIDENS>
struct NarrowRing {};
template <int STAGES, typename Tiles>
struct NarrowRing<STAGES, Tiles, true> {
  Ring<STAGES> ring;
  Tiles tiles;
};

template <typename T, typename KV, int D, int DV, int TILE_ROWS, int TILE_KV, int STAGES, int Q_TILES,
          typename Tiles>
struct AttentionShared : NarrowValues<KV, DV, TILE_KV, STAGES, !same<T, KV>> {
  static constexpr bool WIDENS = !same<T, KV>;
  using V = typename ProductType<T, KV>::Type;
  static constexpr int K_PANELS = panels_of<KV>(D), V_PANELS = panels_of<V>(DV);

  static constexpr int GROUPS = TILE_ROWS / 64, ROW_PANELS = K_PANELS > V_PANELS ? K_PANELS : V_PANELS;

  Panel<KV, 64> q[Q_TILES][GROUPS][ROW_PANELS];  // rows of each warpgroup; then its results
  Panel<KV, TILE_KV> k[STAGES][K_PANELS];
  Panel<V, TILE_KV> v[STAGES][V_PANELS];
  Ring<STAGES> k_ring, v_ring;
  Tiles tiles[GROUPS];  // of each warpgroup that computes
  Tiles loader_tiles;   // the same tiles, which the loader reaches first
  i32 last_part;
  NarrowRing<STAGES, Tiles, WIDENS> narrow;
};

// Loads panels of all kv blocks of the block's tiles. If k and v have pages, the warps of Load call it, and otherwise one
// thread.
//
// The maps have the dimensions elements, heads, rows of a page, and pages; ragged arrays are one page. A box has `box`
// rows, which divide TILE_KV and a page, so each lane loads the boxes of one page. TMA fills what lies beyond the end of a
// head, of k or of v with zeros: page -1 stands for tokens that nobody needs, whose pages may not exist.
template <typename Load, int TILE_KV, bool PAGED, typename Shared>
__device__ __forceinline__ void load_kv_blocks(Shared& shared, const TensorMap& map_k, const TensorMap& map_v,
                                               const AttentionPlan& work, i32 window_left, i32 window_right,
                                               const i32* kv_indices, i32 page_size, i32 box) {
  constexpr bool WIDENS = Shared::WIDENS;
  constexpr int LOADERS = 4;  // the barrier of the warps that load
  const int warp = PAGED ? threadIdx.x / 32 % 4 : 0, lane = PAGED ? threadIdx.x % 32 : 0,
            first = PAGED ? lane * box : 0;
  auto& tiles = shared.loader_tiles;
  // Waits until the stage is empty, and loads the warp's panels of one operand.
  const auto load_panels = [&](auto& ring, RingPlace& at, auto& stages, const TensorMap& map, int first_panel,
                               i32 head, i32 row, i32 page) {
    constexpr int PANELS = sizeof(stages[0]) / sizeof(stages[0][0]), ROW = PANEL_ROW<typename Load::Element>;
    if (Load::WARPS <= PANELS || first_panel < PANELS) {
      if (lane == 0) ring.begin(at, (PANELS - first_panel + Load::WARPS - 1) / Load::WARPS * TILE_KV * 128);
      if constexpr (PAGED) __syncwarp();
      if (first < TILE_KV) {
#pragma unroll
        for (int i = 0; i < PANELS; i += Load::WARPS) {
          const int panel = i + first_panel;
          if (PANELS % Load::WARPS == 0 || panel < PANELS)
            tma_load(stages[at.stage][panel] + first * ROW, map, ring.full[at.stage], panel * ROW, head, row,
                     page);
        }
      }
    }
    ring.next(at);
  };
  // The step from a kv block to the next. Divisions in the loop would take issue slots from the warps that compute.
  i32 pages = 0, rows = TILE_KV;
  if constexpr (PAGED) {
    pages = TILE_KV / page_size;
    rows = TILE_KV % page_size;
  }
  RingPlace k_at, v_at;
  while (true) {
    if constexpr (PAGED) sync_threads(LOADERS, Load::WARPS * 32);
    if (warp == 0 && lane == 0) tiles.next(work, window_left, window_right);
    if constexpr (PAGED) sync_threads(LOADERS, Load::WARPS * 32);
    if (!tiles.any()) return;
    const i32 base = tiles.now.kv_base, head = tiles.now.kv_head, end = tiles.now.kv_end;
    i32 row = base + tiles.now.kv_begin;  // of the lane's box, in its page
    const i32* entry = nullptr;           // of the page, in the page table
    if constexpr (PAGED) {
      entry = kv_indices + base + (tiles.now.kv_begin + first) / page_size;
      row = (tiles.now.kv_begin + first) % page_size;
    }
    const auto page_at = [&](i32 kv) {
      if constexpr (!PAGED) return 0;
      return first < TILE_KV && kv + first < end ? static_cast<i32>(load<1>(entry).word[0]) : -1;
    };
    i32 next_page = page_at(tiles.now.kv_begin);
    for (i32 kv = tiles.now.kv_begin; kv < end; kv += TILE_KV) {
      const i32 page = next_page, now = row;
      row += rows;
      entry += pages;
      if (PAGED && row >= page_size) row -= page_size, ++entry;
      next_page = page_at(kv + TILE_KV);  // this load runs while the stages are full
      load_panels(shared.k_ring, k_at, shared.k, map_k, Load::first_of_k(warp), head, now, page);
      if constexpr (WIDENS)
        load_panels(shared.narrow.ring, v_at, shared.values, map_v, Load::first_of_v(warp), head, now, page);
      else
        load_panels(shared.v_ring, v_at, shared.v, map_v, Load::first_of_v(warp), head, now, page);
    }
  }
}

// Returns eight codes as f16.
__device__ __forceinline__ uint4 widened(u32 low, u32 high) {
  return make_uint4(half_pair<false>(low), half_pair<true>(low), half_pair<false>(high),
                    half_pair<true>(high));
}

// Widens the codes of v to f16, for all kv blocks of the block's tiles. The four warps of a warpgroup call it. Rows after the
// tokens of a tile may be NaN, and become zeros.
template <int TILE_KV, typename Shared>
__device__ __forceinline__ void widen_values(Shared& shared, const AttentionPlan& work, i32 window_left,
                                             i32 window_right) {
  // A warp takes eight rows at a time, and a lane 16 codes of each panel of f16. Eight lanes read and write the chunks of a
  // half row in each of two rows. One of these rows is odd, and one is among the first four of the eight. So the swizzle
  // spreads their chunks over all banks.
  constexpr int PANELS = Shared::V_PANELS, WIDENERS = 5, STEP = 32;
  constexpr int BATCH = PANELS > 2 ? 1 : 4 / PANELS;  // rows of a lane whose codes are under way together
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, chunk = lane % 4,
            line = lane / 8 ^ lane / 4 % 2 * 5;
  auto& tiles = shared.narrow.tiles;
  RingPlace from_at, to_at;
  while (true) {
    sync_threads(WIDENERS, 128);
    if (threadIdx.x % 128 == 0) tiles.next(work, window_left, window_right);
    sync_threads(WIDENERS, 128);
    if (!tiles.any()) return;
    for (i32 kv = tiles.now.kv_begin, end = tiles.now.kv_end; kv < end; kv += TILE_KV) {
      shared.narrow.ring.wait(from_at);
      shared.v_ring.empty[to_at.stage].wait(to_at.parity ^ 1);
#pragma unroll 1
      for (int first = warp * 8 + line; first < TILE_KV; first += BATCH * STEP) {
        uint4 codes[BATCH][PANELS];
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
          const int row = first + b * STEP;
#pragma unroll
          for (int i = 0; i < PANELS; ++i) {
            codes[b][i] = make_uint4(0, 0, 0, 0);
            if ((TILE_KV % (BATCH * STEP) == 0 || row < TILE_KV) && kv + row < end)
              codes[b][i] = reinterpret_cast<const uint4*>(
                  shared.values[from_at.stage][i / 2])[row * 8 + ((i % 2 * 4 + chunk) ^ line)];
          }
        }
#pragma unroll
        for (int b = 0; b < BATCH; ++b) {
          const int row = first + b * STEP;
          if (TILE_KV % (BATCH * STEP) != 0 && row >= TILE_KV) break;
#pragma unroll
          for (int i = 0; i < PANELS; ++i) {
            uint4* const to = reinterpret_cast<uint4*>(shared.v[to_at.stage][i]) + row * 8;
            to[(chunk * 2) ^ line] = widened(codes[b][i].x, codes[b][i].y);
            to[(chunk * 2 + 1) ^ line] = widened(codes[b][i].z, codes[b][i].w);
          }
        }
      }
      fence_async_shared();
      __syncwarp();
      if (lane == 0) {
        shared.v_ring.full[to_at.stage].arrive();
        shared.narrow.ring.release(from_at.stage);
      }
      shared.narrow.ring.next(from_at);
      shared.v_ring.next(to_at);
    }
  }
}

template <typename T, typename KV, int D, int DV, int GROUP, bool CAUSAL, bool WINDOW, bool SOFT_CAP,
          bool PAGED, bool SINK, int TILE_ROWS, int TILE_KV, int STAGES, int Q_TILES, bool TURNS>
__device__ __forceinline__ void attention_on_hopper(
    const TensorMap& map_k, const TensorMap& map_v, T* o, const KV* q, i32* plan, f32* workspace, i32 workers,
    i32 kv_heads, i64 stride_o, i64 stride_o_head, i64 stride_q, i64 stride_q_head, f32 sm_scale, f32* lse,
    f32 soft_cap, i32 window_left, const i32* kv_indices, i32 page_size, i32 box, i32 window_right,
    const f32* sinks, i32 tokens, const AttentionScales& scales) {
  // Warpgroups that compute, and the numbers of the first threads that load and widen.
  constexpr int GROUPS = TILE_ROWS / 64, LOADER = GROUPS * 128, WIDENER = LOADER + 128;
  constexpr int ALL = 1, OWN = 6, TURN = 9;  // barriers of all computing warpgroups, of each, and of its turn
  using Load = Loaders<KV, D, DV, PAGED>;
  // Some registers go to the warps that widen values, and to those that load pages.
  constexpr bool FEW_REGISTERS = !same<T, KV> || (PAGED && DV > 192);
  using Tile = AttentionTile<T, D, DV, TILE_ROWS, TILE_KV, GROUPS * 4, FEW_REGISTERS>;
  using Tiles = AttentionTiles<TILE_ROWS, TILE_KV, GROUP, CAUSAL, WINDOW>;
  using Row = PackedRow<GROUP>;
  extern __shared__ __align__(1024) u8 bytes[];
  using Shared = AttentionShared<T, KV, D, DV, TILE_ROWS, TILE_KV, STAGES, Q_TILES, Tiles>;
  constexpr bool AHEAD = Q_TILES > 1;  // q of the next tile is copied beside the products of a tile
  static_assert(sizeof(Shared) <= sizeof(Shared::q) + sizeof(Shared::k) + sizeof(Shared::v) +
                                      (Shared::WIDENS ? STAGES * TILE_KV * 128 * Load::V_PANELS : 0) + 1024,
                "SMEM of the manifest must have room for it");
  constexpr bool WIDENS = Shared::WIDENS;
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const AttentionPlan work{plan, workers};

  work.prefetch(blockIdx.x);
  if (threadIdx.x == 0) {
    shared.k_ring.init(GROUPS * 4, Load::OF_K);  // each of the warps that compute releases a stage
    if constexpr (WIDENS) {
      shared.v_ring.init(GROUPS * 4, 4);
      shared.narrow.ring.init(4, Load::OF_V);
    } else {
      shared.v_ring.init(GROUPS * 4, Load::OF_V);
    }
  }
  if (threadIdx.x == LOADER) {
    tma_prefetch(map_k);
    tma_prefetch(map_v);
  }
  const bool fits = work.fits();
  pdl_wait();
  {
    const AttentionShare share = work.share(blockIdx.x, fits);
    constexpr u32 MADE_FOR = attention_made_for(TILE_ROWS, TILE_KV, GROUP, CAUSAL, true);
    const i32 right = WINDOW && !CAUSAL ? window_right : -1;
    if (work.differs(MADE_FOR, kv_heads, window_left, right)) {
      work.refuse(MADE_FOR, kv_heads, window_left, right);
      return clear_results<DV>(o, lse, tokens, kv_heads * GROUP, stride_o, stride_o_head);
    }
    if (threadIdx.x < LOADER && threadIdx.x % 128 == 0) shared.tiles[threadIdx.x / 128].begin(work, share);
    if (threadIdx.x == LOADER) shared.loader_tiles.begin(work, share);
    if constexpr (WIDENS)
      if (threadIdx.x == WIDENER) shared.narrow.tiles.begin(work, share);
  }
  __syncthreads();

  if (threadIdx.x >= LOADER) {
    if (WIDENS && threadIdx.x >= WIDENER) {
      give_registers_to<48>();
      if constexpr (WIDENS) widen_values<TILE_KV>(shared, work, window_left, window_right);
      return;
    }
    give_registers_to<WIDENS ? (DV > 128 ? 32 : 48) : GROUPS == 3 ? 32 : PAGED ? 40 : 24>();
    if (PAGED ? threadIdx.x < LOADER + 32 * Load::WARPS : threadIdx.x == LOADER) {
      load_kv_blocks<Load, TILE_KV, PAGED>(shared, map_k, map_v, work, window_left, window_right, kv_indices,
                                           page_size, box);
    }
    return;
  }

  take_registers_to<WIDENS ? (DV > 128 ? 216 : 208) : GROUPS == 3 ? 160 : PAGED ? 232 : 240>();
  const int group = warpgroup(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  LogitTransform<SOFT_CAP, false> transform(softmax_scale(sm_scale, D), soft_cap);
  Tiles& tiles = shared.tiles[group];
  RingPlace k_at, v_at;
  const auto release = [&](auto& ring, RingPlace& at) {
    if (lane == 0) ring.release(at.stage);
    ring.next(at);
  };
  // Begins to copy q of the warpgroup's tile.
  const auto copy_q = [&](int place) {
    const AttentionItem& now = tiles.now;
    copy_rows_to_panels<GROUP, D>(shared.q[place][group],
                                  q + now.qo_begin * stride_q + now.kv_head * GROUP * stride_q_head, stride_q,
                                  stride_q_head, now.first_row + warp * 16, now.qo_len * GROUP);
    copy_async_commit();
  };
  const auto next_tile = [&] {
    sync_threads(OWN + group, 128);  // no thread of the warpgroup needs the tile any more
    if (threadIdx.x % 128 == 0) tiles.next(work, window_left, window_right);
    sync_threads(OWN + group, 128);
  };
  if (TURNS && group == 0) arrive_threads(TURN, 256);  // nobody else arrives for the first turn
  int q_at = 0;                                        // place of the tile's q
  if constexpr (AHEAD) {
    next_tile();
    if (tiles.any()) copy_q(q_at);
  }
  while (true) {
    if constexpr (!AHEAD) next_tile();
    if (!tiles.any()) return;
    const AttentionItem item = tiles.now;
    const i32 first_row = item.first_row + warp * 16, rows = item.qo_len * GROUP,
              ahead = item.kv_len - item.qo_len;
    if constexpr (WIDENS) {
      const f32 unit = load_scale<KV>(scales.q, scales.stride, item.kv_head) *
                       load_scale<KV>(scales.k, scales.stride, item.kv_head);
      transform = LogitTransform<SOFT_CAP, false>(softmax_scale(sm_scale, D) * unit,
                                                  __int_as_float(fresh(__float_as_int(soft_cap))));
    }
    const f32 scale = transform.scale();

    auto& panels = shared.q[q_at][group];
    if constexpr (!AHEAD) copy_q(q_at);
    copy_async_wait<0>();
    fence_async_shared();
    if constexpr (AHEAD) {
      next_tile();
      q_at ^= 1;
      if (tiles.any()) copy_q(q_at);
    } else {
      sync_threads(OWN + group, 128);
    }

    WgmmaTile<typename Shared::V, D, DV, TILE_KV, KV> own;
    own.clear();
    const auto multiply_k = [&] {
      shared.k_ring.wait(k_at);
      own.multiply_k(panels, shared.k[k_at.stage]);
    };
    // The products are 0 times v for tokens that no row sees. Rows from `left` on are of other requests, and may be NaN, so
    // they become zeros, unless widen_values() made them zeros. Each warpgroup writes all zeros that it will read.
    const auto multiply_v = [&](i32 left) {
      shared.v_ring.wait(v_at);
      if (!WIDENS && left < TILE_KV) {
        for (int at = left * 8 + threadIdx.x % 128; at < TILE_KV * 8; at += 128) {
#pragma unroll
          for (int i = 0; i < own.V_PANELS; ++i)
            reinterpret_cast<uint4*>(shared.v[v_at.stage][i])[at] = make_uint4(0, 0, 0, 0);
        }
        fence_async_shared();
        sync_threads(OWN + group, 128);
      }
      own.multiply_v(shared.v[v_at.stage]);
    };
    // Turns products into logits, of the kv block that begins at `kv`. Returns whether a row has outgrown its shift.
    const auto make_logits = [&](i32 kv) {
      wgmma_results(own.s);
      if constexpr (SOFT_CAP) {
#pragma unroll
        for (f32& x : own.s) x = transform(x, 0.0f);
      }
      const i32 own_first = Row(first_row).token + ahead, own_last = Row(first_row + 15).token + ahead;
      if (item.kv_end - kv < TILE_KV || (CAUSAL && kv + TILE_KV - 1 > own_first) ||
          (WINDOW && window_left >= 0 && kv < own_last - window_left) ||
          (WINDOW && !CAUSAL && window_right >= 0 && kv + TILE_KV - 1 - window_right > own_first)) {
        own.template mask<WINDOW>([&](int h) {
          const Visible sees = visible<CAUSAL, WINDOW>(Row(first_row + h * 8 + lane / 4).token, item.qo_len,
                                                       item.kv_len, window_left, window_right);
          return Visible{sees.first - kv, min(sees.last, item.kv_end - 1) - kv};
        });
      }
      return own.outgrown(scale);
    };

    if (item.first_row + group * 64 >= rows) {
      // Few tokens of a request leave this warpgroup without rows. One lane of each warp lets the loader go on: others could
      // look at a stage only after it was filled again.
      for (i32 kv = item.kv_begin; kv < item.kv_end; kv += TILE_KV) {
        if (lane == 0) shared.k_ring.wait(k_at);
        release(shared.k_ring, k_at);
        if (lane == 0) shared.v_ring.wait(v_at);
        release(shared.v_ring, v_at);
      }
    } else if (item.kv_begin < item.kv_end) {
      const bool in_turns = TURNS && item.first_row + (GROUPS - 1) * 64 < rows;  // all warpgroups have rows
      // The first kv block has no product with v beside it.
      f32 factor[2];
      multiply_k();
      wgmma_wait<0>();
      release(shared.k_ring, k_at);
      if (make_logits(item.kv_begin)) own.raise_shifts(factor);  // the sums are 0
      own.weigh(scale);
      own.pack_weights();
#pragma unroll 1
      for (i32 kv = item.kv_begin + TILE_KV; kv < item.kv_end; kv += TILE_KV) {
        if (in_turns) sync_threads(TURN + group, 256);
        multiply_k();
        multiply_v(TILE_KV);
        if (in_turns) arrive_threads(TURN + (group + 1 == GROUPS ? 0 : group + 1), 256);
        wgmma_wait<1>();  // for the product with k; the product with v may go on
        release(shared.k_ring, k_at);
        const bool outgrown = make_logits(kv);
        factor[0] = factor[1] = 1.0f;
        if (outgrown) own.raise_shifts(factor);
        own.weigh(scale);
        wgmma_wait<0>();
        wgmma_results(own.sums);
        release(shared.v_ring, v_at);
        if (outgrown) own.rescale_sums(factor);
        own.pack_weights();
      }
      // Only the last kv block may have rows of other requests.
      const i32 left = (item.kv_end - item.kv_begin) % TILE_KV;
      multiply_v(left == 0 ? TILE_KV : left);
      wgmma_wait<0>();
      wgmma_results(own.sums);
      release(shared.v_ring, v_at);
    }
    if (AHEAD ? !tiles.any() : tiles.let_next_in())
      pdl_launch_dependents();  // AHEAD: `tiles` is at the next tile

    Tile tile;
    const f32 unit = load_scale<KV>(scales.v, scales.stride, item.kv_head) * product_unit<KV>();
#pragma unroll
    for (int i = 0; i < DV / 2; ++i) tile.o[0][i / 4][i % 4] = own.sums[i] * unit;
    tile.row[0][0] = own.row[0];
    tile.row[0][1] = own.row[1];
    tile.finish();

    // Results go through the warp's part of the memory of q. The barrier says that the whole warpgroup has read q.
    sync_threads(OWN + group, 128);
    u8* const staging = reinterpret_cast<u8*>(panels) + warp % 4 * 16 * Tile::RowOfV::PITCH;
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
      tile.stage(staging, emit_lse);
    } else {
      // Without fresh(), values derived from `workers` would stay in registers through the products.
      const AttentionPlan now{plan, fresh(workers)};
      const typename Tile::Slots slots{workspace, now.workers};
      tile.save(slots, item.slot());
      sync_threads(ALL, GROUPS * 128);
      if (threadIdx.x == 0) shared.last_part = now.arrive_between_barriers(item);
      sync_threads(ALL, GROUPS * 128);
      if (!shared.last_part) continue;
      tile.merge(slots, item.first_slot, item.parts, staging, emit_lse, add_sink);
    }
    __syncwarp();
    Tile::template store_rows<GROUP>(o + item.qo_begin * stride_o + item.kv_head * GROUP * stride_o_head,
                                     stride_o, stride_o_head, staging, first_row, rows);
    __syncwarp();
  }
}

}  // namespace kiln
