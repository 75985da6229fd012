// d = epilogue(a b^T) for a mixture of experts on Hopper: each block of rows has the b of its expert.
//
// The grid is constant, and blocks take tiles of columns and rows as the routing on the device says. So a captured graph
// replays any routing. The kernel is gemm's (gemm/hopper.cu), with two differences:
// - Threads of the loader copy the tokens of a tile, because the rows of an expert lie anywhere in a. TMA would need an
//   instruction for each row, which takes 37 clocks on an H200. Places without a row load nothing. What their memory has from
//   before only meets sums that nobody stores.
// - Results go to the rows that the routing names.
//
// PLACED_A: a has a row for each place, so that TMA loads the tokens of a tile by one instruction. Rows of places without a
// row of d may have any values, which meet only sums that nobody stores. PLACED_D: results go to the places themselves.
//
// PAIR: the two blocks of a cluster have neighbouring blocks of rows and the same columns. They go through their rings
// together. Where both have the same expert, each loads half of b for both. Power limits products of many tokens on an
// H200, and a copy of b for two blocks takes less of it.
//
// SPLIT: the blocks of a cluster multiply parts of K of one tile, and each finishes some of its tokens. So the few tiles of few
// tokens keep more SMs busy.
#include "gemm/multiply.cuh"
#include "gemm/sums.cuh"
#include "kiln/cluster.cuh"
#include "kiln/copy_async.cuh"
#include "kiln/hopper/results.cuh"
#include "kiln/hopper/tiles.cuh"
#include "kiln/pdl.cuh"
#include "kiln/quantum.cuh"
#include "kiln/reduce.cuh"
#include "moe/experts.cuh"

namespace kiln {

// masked: the experts' blocks of rows that are in use, without the empty ones between them.
template <int E, int BLOCK>
struct UsedBlocks {
  i32 ends[E];  // the number of used blocks of all experts up to each

  // The first warp of the block calls it; others may read after __syncthreads().
  __device__ __forceinline__ void count(const i32* rows_of, i32 most) {
    i32 before = 0;
    for (int first = 0; first < E; first += 32) {
      const int expert = first + threadIdx.x % 32;
      const i32 rows = expert < E ? smaller(rows_of[expert], most) : 0;
      const i32 end = before + warp_inclusive_sum<32>(static_cast<i32>(ceil_div(rows, BLOCK)));
      if (expert < E) ends[expert] = end;
      before = __shfl_sync(~0u, end, 31);
    }
  }
  // Returns the number, among all blocks, of the n-th used one. `blocks` is the number of blocks of an expert.
  __device__ __forceinline__ i32 nth(i32 n, i32 blocks) const {
    int low = 0, high = E - 1;  // the first expert whose end is after n
    while (low < high) {
      const int middle = (low + high) / 2;
      if (ends[middle] > n)
        high = middle;
      else
        low = middle + 1;
    }
    return low * blocks + n - (low > 0 ? ends[low - 1] : 0);
  }
};

// SPLIT: what a block has for the blocks that it shares a tile with.
template <typename Shape, int SPLIT>
struct Exchange {
  __align__(128) u8 sums[Sums<Shape>::BYTES];  // of this block, on their way to the others
  // Each block arrives here when it has read the sums that it received. Sums of the next tile may then take their memory.
  Barrier read;
};
template <typename Shape>
struct Exchange<Shape, 1> {};

template <typename AB, typename OUT, int N, int K, int E, Layout LAYOUT, typename Shape, Factors SCALES,
          typename Finish, bool EARLY_B, int GROUP, bool PLACED_A, bool PLACED_D>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    moe_gemm(const AB* a, i64 stride_a, const __grid_constant__ TensorMap map_a,
             const __grid_constant__ TensorMap map_b, OUT* d, const i32* expert_ids,
             const i32* sorted_token_ids, const i32* num_tokens_post_padded, i32 rows, i32 k, i64 stride_d,
             const f32* scale_a, i64 stride_scale_a, i64 step_scale_a, const f32* scale_b,
             const typename Finish::Bias* bias, const f32* weights, f32 alpha, f32 limit, f32* scale_d,
             i64 stride_scale_d, i64 step_scale_d) {
  constexpr bool SWAP = Shape::swap, GATED = Finish::gated, BLOCKWISE = SCALES == Factors::block;
  constexpr int LEFT = Shape::left, RIGHT = Shape::right, WARPGROUPS = Shape::warpgroups,
                LOADER = 128 * WARPGROUPS, SPLIT = Shape::split;
  using Memory = GemmShared<AB, Shape, BLOCKWISE, false, !PLACED_A>;
  constexpr int BK = Memory::BK, STEPS = static_cast<int>(ceil_div(K, BK)), BLOCK = Memory::TOKENS;
  constexpr int B_ROWS = SWAP ? LEFT : RIGHT, COLUMNS = GATED ? B_ROWS / 2 : B_ROWS;
  constexpr int PARTS = scale_parts<Shape, GATED>, LOADERS = Shape::loaders, PAIR = Shape::pair;
  static_assert(PAIR == 1 || !SWAP, "a pair shares the rows on the right");
  static_assert(SPLIT == 1 || (SWAP && !PLACED_A), "sums of a cluster pass through shared memory");
  static_assert(SPLIT <= STEPS, "each block of a cluster needs a part of K");
  // The b of an expert is larger than the L2. It stays there rather than the tokens, which only this expert reads.
  constexpr bool LARGE = !SWAP && i64{GATED ? 2 : 1} * N * K * static_cast<int>(sizeof(AB)) > 64 << 20;
  using Rows = Routing<LAYOUT, BLOCK, E>;
  using Used = UsedBlocks<LAYOUT == Layout::masked ? E : 1, BLOCK>;
  // Results pass through shared memory, where each warp has a place for its 16 rows of WIDE columns of 2 bytes, or of twice
  // as many of 1 byte.
  constexpr bool STAGED = !SWAP && (sizeof(OUT) == 1 || (sizeof(OUT) == 2 && !Finish::slow_to_compile));
  constexpr int WIDE = columns_together(COLUMNS);
  struct All {
    Memory memory;
    __align__(128) u8 results[STAGED ? WARPGROUPS : 1][STAGED ? 64 * WIDE * 2 : 16];
    Used used;
    i32 rows[BLOCK];  // of d, of a tile; -1: none
    f32 weights[Finish::weighted ? BLOCK : 1];
    Exchange<Shape, SPLIT> exchange;
  };
  extern __shared__ __align__(1024) u8 bytes[];
  All& all = *reinterpret_cast<All*>(bytes);
  Memory& shared = all.memory;
  Used& used = all.used;

  const int rank = PAIR * SPLIT > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int first_tile = blockIdx.x / (PAIR * SPLIT), stride_tiles = gridDim.x / (PAIR * SPLIT);
  const int begin = SPLIT > 1 ? STEPS * rank / SPLIT : 0;
  const int end = SPLIT > 1 ? STEPS * (rank + 1) / SPLIT : STEPS;
  if constexpr (SPLIT > 1) {
    if (threadIdx.x == 0) {
      all.exchange.read.init(SPLIT);
      shared.received.init(1);
      shared.received.arrive_expecting(Sums<Shape>::SENT);
    }
  }
  if (threadIdx.x == 0) shared.ring.init(4 * WARPGROUPS * PAIR, PLACED_A ? 1 : 1 + LOADERS);
  if (threadIdx.x == LOADER) {
    tma_prefetch(map_b);
    if constexpr (PLACED_A) tma_prefetch(map_a);
  }
  if constexpr (!EARLY_B) pdl_wait();
  if constexpr (LAYOUT == Layout::masked) {
    if (threadIdx.x < 32) used.count(expert_ids, rows);
  }
  if constexpr (PAIR > 1) {  // the other block's loads come to this block's barriers
    cluster_arrive_relaxed();
    cluster_wait();
  }
  if constexpr (SPLIT > 1) cluster_arrive_relaxed();  // the wait comes before the first block sends
  __syncthreads();

  const Rows routing{expert_ids, sorted_token_ids, num_tokens_post_padded, rows};
  const int of_rows =
      LAYOUT == Layout::masked ? used.ends[LAYOUT == Layout::masked ? E - 1 : 0] : routing.blocks();
  const Tiles<GROUP / PAIR> tiles{static_cast<int>(ceil_div(of_rows, PAIR)),
                                  static_cast<int>(ceil_div(N, COLUMNS))};
  struct Place {
    ExpertRows rows;
    int column;     // the first one
    bool multiply;  // this block or the other one of the pair has an expert
    bool shared;    // both have the same one
  };
  const auto place = [&](int tile) {
    Place to;
    int block;
    tiles.place(tile, block, to.column);
    to.column *= COLUMNS;
    const auto rows_at = [&](int n) -> ExpertRows {
      if (PAIR > 1 && n >= of_rows) return {-1, 0, 0};
      if constexpr (LAYOUT == Layout::masked) n = used.nth(n, static_cast<i32>(ceil_div(rows, BLOCK)));
      return routing.at(n);
    };
    to.rows = rows_at(block * PAIR + (PAIR > 1 ? rank : 0));
    const i32 other = PAIR > 1 ? rows_at(block * PAIR + 1 - rank).expert : -1;
    to.multiply = to.rows.expert >= 0 || other >= 0;
    to.shared = PAIR > 1 && to.rows.expert == other;
    return to;
  };
  RingPlace at;

  if (threadIdx.x >= LOADER) {
    if constexpr (Shape::blocks == 1) give_registers_to<PLACED_A ? 40 : 56>();
    // Four threads copy a row, 16 bytes at a time: first its first half, then the other. Each 8 neighbouring threads have
    // rows r and r + 4, whose swizzles are apart, so that their writes meet no bank twice.
    constexpr int AT_ONCE = LOADERS / 4, OF_THREAD = static_cast<int>(ceil_div(BLOCK, AT_ONCE));
    constexpr int SCALES_OF_THREAD = static_cast<int>(ceil_div(BLOCK, LOADERS));
    const int thread = threadIdx.x - LOADER, four = thread / 4;
    const int first = four / 8 * 8 + four % 2 * 4 + four % 8 / 2;
    constexpr int BYTES_OF_A = PLACED_A ? BLOCK * 128 + (BLOCKWISE ? BLOCK * 4 : 0) : 0;  // by TMA
    // Loads b, and announces what TMA loads of both.
    const auto load_b = [&](int stage, int step, const Place& of) {
      constexpr L2 KEEP = SWAP ? L2::evict_first : LARGE ? L2::evict_last : L2::normal;
      Barrier& full = shared.ring.full[stage];
      AB* to = SWAP ? shared.left[stage][0] : shared.right[stage][0];
      const i32 expert = of.rows.expert;
      if (PAIR > 1 && expert < 0) {
        full.arrive();
        return;
      }
      full.arrive_expecting(B_ROWS * 128 + BYTES_OF_A);
      constexpr int BOXES = GATED || PAIR > 1 ? 2 : 1, APART = GATED ? N : B_ROWS / 2;
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
        AB* const part = to + box * (B_ROWS / 2 * BK);
        const int x = step * BK, y = of.column + box * APART;
        if (PAIR == 1 || !of.shared)
          tma_load(part, map_b, full, x, y, expert, KEEP);
        else if (box == rank)
          tma_load_to(3, part, map_b, full, x, y, expert, KEEP);
      }
    };
    // Returns the row of a at a place of a tile, or -1.
    const auto row_of_a = [&](const ExpertRows& of, int place) {
      const i32 row = place < BLOCK ? routing.row(of, place) : -1;
      return LAYOUT == Layout::routed && row >= 0 ? row / k : row;
    };
    const auto load_placed_a = [&](int stage, int step, const ExpertRows& of) {
      if (PAIR > 1 && of.expert < 0) return;
      Barrier& full = shared.ring.full[stage];
      tma_load(SWAP ? shared.right[stage][0] : shared.left[stage][0], map_a, full, step * BK, of.first);
      if constexpr (BLOCKWISE)
        bulk_load(shared.scales[stage], scale_a + step * step_scale_a + of.first, BLOCK * 4, full);
    };
    bool early = EARLY_B;
    for (int tile = first_tile; (!PLACED_A || thread == 0) && tile < tiles.count(); tile += stride_tiles) {
      const Place at_tile = place(tile);
      const ExpertRows& of = at_tile.rows;
      if (!at_tile.multiply) continue;
      i32 row[OF_THREAD], scale_row[SCALES_OF_THREAD];
#pragma unroll
      for (int i = 0; !PLACED_A && i < OF_THREAD; ++i) row[i] = row_of_a(of, first + AT_ONCE * i);
#pragma unroll
      for (int i = 0; !PLACED_A && BLOCKWISE && i < SCALES_OF_THREAD; ++i)
        scale_row[i] = row_of_a(of, thread + LOADERS * i);
      int ahead = 0;  // stages that have b already
      if (early) {
        ahead = smaller(Shape::stages, end - begin);
        for (int step = 0; thread == 0 && step < ahead; ++step) load_b(step, begin + step, at_tile);
        pdl_wait();
        early = false;
      }
#pragma unroll 1
      for (int step = begin; step < end; ++step, shared.ring.next(at)) {
        // Each thread arrives once at each round of a stage, so none can miss the end of a phase.
        shared.ring.empty[at.stage].wait(at.parity ^ 1);
        if (thread == 0 && step - begin >= ahead) load_b(at.stage, step, at_tile);
        if constexpr (PLACED_A) {
          load_placed_a(at.stage, step, of);
          continue;
        }
        const u32 to = shared_address(SWAP ? shared.right[at.stage][0] : shared.left[at.stage][0]);
#pragma unroll
        for (int chunk = thread % 4, half = 0; half < 2; ++half, chunk += 4) {
          const int x = step * BK + chunk * (16 / static_cast<int>(sizeof(AB)));
          const AB* const from = a + (x < K ? x : 0);
          const u32 into = to + first * 128 + (chunk ^ first % 8) * 16;
#pragma unroll
          for (int i = 0; i < OF_THREAD; ++i) {
            if (row[i] >= 0) copy_async_or_zero(into + i * AT_ONCE * 128, from + row[i] * stride_a, x < K);
          }
        }
#pragma unroll
        for (int i = 0; BLOCKWISE && i < SCALES_OF_THREAD; ++i) {
          if (scale_row[i] >= 0)
            copy_async<1>(&shared.scales[at.stage][thread + LOADERS * i],
                          scale_a + scale_row[i] * stride_scale_a + step * step_scale_a);
        }
        copy_async_arrive(&shared.ring.full[at.stage]);
      }
    }
    __syncwarp();
  } else {
    if constexpr (Shape::blocks == 1)
      take_registers_to<WARPGROUPS == 3 || WARPGROUPS == 4 ? 104 : PLACED_A ? 232 : 224>();
    if constexpr (EARLY_B) pdl_wait();
    pdl_launch_dependents();
    if constexpr (SPLIT > 1) cluster_wait();
    [[maybe_unused]] u32 turn = 0;  // SPLIT: tiles before this one
    const int group = warpgroup(), lane = threadIdx.x % 32;
    const auto release = [&](int stage) {
      if constexpr (PAIR > 1) {
        if (lane < PAIR) cluster_arrive_at(shared.ring.empty[stage], lane);
      } else {
        if (lane == 0) shared.ring.release(stage);
      }
    };
    const Finish finish{bias, alpha, limit};
    using Part = Columns<GATED, RIGHT>;
    // The place of a tile whose row this thread looks up: with SWAP for all threads, with STAGED for its warp, and otherwise
    // for its warpgroup.
    const int in_group = threadIdx.x % 128;
    const int own = SWAP            ? static_cast<int>(threadIdx.x)
                    : STAGED        ? group * 64 + in_group / 32 * 16 + lane % 16
                    : in_group < 64 ? group * 64 + in_group
                                    : BLOCK;
    const auto meet = [&] { SWAP ? sync_threads(1, 128 * WARPGROUPS) : sync_threads(group + 1, 128); };
    // Returns the row of d at a place of a block, or -1.
    const auto row_of_d = [&](const ExpertRows& of, int place) {
      const i32 row = routing.row(of, place);
      return PLACED_D && row >= 0 ? of.first + place : row;
    };
    struct Seen {
      Place place;
      i32 row;           // own, of d
      i32 some, others;  // without SWAP: two of the rows of the warpgroup, which its lanes share
    };
    const auto look = [&](int tile) {
      Seen seen;
      seen.place = place(tile);
      seen.row = own < BLOCK ? row_of_d(seen.place.rows, own) : -1;
      if constexpr (!SWAP) {
        seen.some = routing.row(seen.place.rows, group * 64 + lane);
        seen.others = routing.row(seen.place.rows, group * 64 + 32 + lane);
      }
      return seen;
    };
    // Stores zeros in COLUMNS columns of the 16 rows of this warp.
    const auto zeros = [&](i32 own_row, int first_column) {
      constexpr int WIDTH = 16 / sizeof(OUT);
#pragma unroll 1
      for (int i = lane; i < 16 * (COLUMNS / WIDTH); i += 32) {
        const i32 row = __shfl_sync(~0u, own_row, i / (COLUMNS / WIDTH));
        const int column = first_column + i % (COLUMNS / WIDTH) * WIDTH;
        if (row < 0 || column >= N) continue;
        store(d + row * stride_d + column, Vec<OUT, WIDTH>{});
        if constexpr (sizeof(OUT) == 1) {
          if (column % 128 == 0)
            scale_d[row * stride_scale_d + column / 128 * step_scale_d] = scale_of<OUT, false>(0.0f, 1e-10f);
        }
      }
    };
    Seen next;
    if (first_tile < tiles.count()) next = look(first_tile);
    for (int tile = first_tile; tile < tiles.count(); tile += stride_tiles) {
      const Seen seen = next;
      const ExpertRows& of = seen.place.rows;
      const int first_column = seen.place.column;
      const i32 own_row = seen.row;
      const f32 own_weight = Finish::weighted && own_row >= 0 ? load_one(weights + own_row) : 1.0f;
      // Without SWAP a warpgroup may have no rows, because the last block of an expert is rarely full.
      const bool any = SWAP || __any_sync(~0u, seen.some >= 0 || seen.others >= 0);
      f32 sums[Shape::pieces][Shape::width / 2];
      if constexpr (!STAGED) {
#pragma unroll
        for (int i = 0; i < Shape::pieces * (Shape::width / 2); ++i)
          sums[i / (Shape::width / 2)][i % (Shape::width / 2)] = 0.0f;
      }
      f32(&all_sums)[RIGHT / 2] = reinterpret_cast<f32(&)[RIGHT / 2]>(sums);
      if (of.expert >= 0 && any) {
        const f32* factors[PARTS] = {};
        if constexpr (BLOCKWISE) {
#pragma unroll
          for (int i = 0; i < PARTS; ++i) {
            const int row = scaled_row<Shape, GATED, N>(first_column, group, i);
            factors[i] = scale_b + (of.expert * ceil_div(GATED ? 2 * N : N, 128) + row / 128) * STEPS;
          }
        }
        multiply<Shape>(sums, shared, at, group, begin, end, factors, release);
      } else {
        if (seen.place.multiply) {
#pragma unroll 1
          for (int step = 0; step < STEPS; ++step, shared.ring.next(at)) {
            shared.ring.wait(at);
            __syncwarp();  // a lane that looks later would miss the phase
            release(at.stage);
          }
        }
      }
      // The next tile is looked up before the epilogue of this one, which takes longer than the loads.
      if (tile + stride_tiles < tiles.count()) next = look(tile + stride_tiles);
      if (!any) continue;
      if constexpr (STAGED) {
        if (of.expert < 0) {
          zeros(own_row, first_column);
          continue;
        }
      }

      const auto finish_and_store = [&](int token, int column, auto& x, auto& other) {
        const i32 row = all.rows[token];
        column += first_column;
        if (row < 0 || column >= N) return;
        if (of.expert >= 0)
          finish.finish(x, other, of.expert, all.weights[Finish::weighted ? token : 0], column);
        OUT* const to = d + row * stride_d + column;
        if constexpr (sizeof(OUT) > 1) {
          store(to, narrow<OUT>(x));
        } else {  // a warp has the 128 columns that share a scale
          f32 most = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
          const f32 scale = scale_of<OUT, false>(warp_reduce<32>(most, Max{}), 1e-10f);
          const f32 quantum = reciprocal_approx(scale);
#pragma unroll
          for (int i = 0; i < 4; ++i) x[i] *= quantum;
          store(to, narrow<OUT>(x));
          if (lane == 0) scale_d[row * stride_scale_d + column / 128 * step_scale_d] = scale;
        }
      };
      if constexpr (!STAGED) {
        if (tile != first_tile) meet();  // the tile before is finished
      }
      if (!STAGED && own < BLOCK) {
        all.rows[own] = own_row;
        if constexpr (Finish::weighted) all.weights[own] = own_weight;
      }
      if constexpr (SWAP) {
        using Parts = Sums<Shape>;
        f32* const memory = reinterpret_cast<f32*>(shared.out);
        if constexpr (SPLIT > 1) {
          f32* const own = reinterpret_cast<f32*>(all.exchange.sums);
          if (turn > 0) all.exchange.read.wait((turn - 1) % 2);
          Parts::put(own, sums[0], group);
          fence_async_shared();
          meet();
          if (threadIdx.x < SPLIT && threadIdx.x != rank)
            Parts::send(memory, own, rank, threadIdx.x, shared.received);
          shared.received.wait(turn % 2);
          Parts::template each<GATED>(own, memory, rank, finish_and_store);
          meet();
          if (threadIdx.x == 0) {
            shared.received.arrive_expecting(Parts::SENT);
            for (int block = 0; block < SPLIT; ++block) cluster_arrive_at(all.exchange.read, block);
          }
          ++turn;
        } else {
          Parts::put(memory, sums[0], group);
          meet();
          Parts::template each<GATED>(memory, nullptr, 0, finish_and_store);
        }
      } else if constexpr (STAGED) {
        const i32 two_rows[2] = {__shfl_sync(~0u, own_row, lane / 4),
                                 __shfl_sync(~0u, own_row, lane / 4 + 8)};
        const f32 weight[2] = {__shfl_sync(~0u, own_weight, lane / 4),
                               __shfl_sync(~0u, own_weight, lane / 4 + 8)};
        // Finishes the pair of sums from all_sums[i] on.
        const auto finish_pair = [&](f32(&two)[2], int i) {
          const int column = first_column + i / 4 * 8 + lane % 4 * 2;
          f32 other[2] = {};
          two[0] = all_sums[i], two[1] = all_sums[i + 1];
          if constexpr (GATED) other[0] = all_sums[RIGHT / 4 + i], other[1] = all_sums[RIGHT / 4 + i + 1];
          if (N % COLUMNS == 0 || column < N) finish.finish(two, other, of.expert, weight[i / 2 % 2], column);
        };
        if constexpr (sizeof(OUT) == 1) {  // four lanes have the 128 columns of a row that share a scale
#pragma unroll
          for (int second = 0; second < 2; ++second) {
            f32 most = 0.0f;
#pragma unroll
            for (int i = second * 2; i < 64; i += 4) {
              f32 two[2];
              finish_pair(two, i);
              all_sums[i] = two[0], all_sums[i + 1] = two[1];
              most = fmaxf(most, fmaxf(fabsf(two[0]), fabsf(two[1])));
            }
            const f32 scale = scale_of<OUT, false>(warp_reduce<4>(most, Max{}), 1e-10f);
            const f32 quantum = reciprocal_approx(scale);
#pragma unroll
            for (int i = second * 2; i < 64; i += 4) all_sums[i] *= quantum, all_sums[i + 1] *= quantum;
            if (lane % 4 == 0 && two_rows[second] >= 0)
              scale_d[two_rows[second] * stride_scale_d + first_column / 128 * step_scale_d] = scale;
          }
        }
        constexpr int EACH = 2 / sizeof(OUT);  // columns in the place of one of 2 bytes
        u8* const results = all.results[group];
#pragma unroll
        for (int c = 0; c < COLUMNS; c += WIDE * EACH) {
          u32 packed[WIDE / 4];
#pragma unroll
          for (int i = 0; i < WIDE / 4; ++i) {  // of this thread's two rows, by turns
            if constexpr (sizeof(OUT) == 1) {   // two pairs that are 8 columns apart
              const int from = i / 2 * 8 + i % 2 * 2;
              const f32 four[4] = {all_sums[from], all_sums[from + 1], all_sums[from + 4],
                                   all_sums[from + 5]};
              packed[i] = narrow<OUT>(four).word[0];
            } else {
              f32 two[2];
              finish_pair(two, c / 2 + 2 * i);
              packed[i] = pack<OUT>(two[0], two[1]);
            }
          }
          __syncwarp();  // the columns before have been read
          store_packed_columns<WIDE>(results, packed);
          __syncwarp();
          constexpr int LANES = WIDE / 8;  // of a row, which have 16 bytes each
#pragma unroll
          for (int i = 0; i < LANES / 2; ++i) {
            const int in_warp = i * (32 / LANES) + lane / LANES;
            const int column = first_column + c + lane % LANES * 8 * EACH;
            const int from = (in_group / 32 * 16 + in_warp) * WIDE * 2 + lane % LANES * 16;
            const i32 row = __shfl_sync(~0u, own_row, in_warp);
            if (row < 0 || (N % COLUMNS != 0 && column >= N)) continue;
            auto x = load_shared<8 * EACH>(
                reinterpret_cast<const OUT*>(results + (from ^ from / 128 % LANES * 16)));
            if constexpr (sizeof(OUT) == 1) {
              const u32 w[4] = {x.word[0], x.word[1], x.word[2], x.word[3]};
#pragma unroll
              for (int j = 0; j < 4; ++j)
                x.word[j] = __byte_perm(w[j % 2 * 2], w[j % 2 * 2 + 1], j < 2 ? 0x5410 : 0x7632);
            }
            store(d + row * stride_d + column, x);
          }
        }
      } else {
        meet();
        const int first = group * 64 + wgmma_row();
        Part::template finish<Finish::slow_to_compile>(
            all_sums, [&](int second, int column, auto& x, auto& other) {
              finish_and_store(first + second * 8, column, x, other);
            });
      }
    }
    if constexpr (SPLIT > 1) {
      if (turn > 0)
        all.exchange.read.wait((turn - 1) % 2);  // the last arrivals would find that this block has ended
    }
  }
  if constexpr (SPLIT > 1) {
    if (threadIdx.x >= LOADER) cluster_wait();  // of the first arrival
  }
  if constexpr (SPLIT * PAIR > 1) {  // other blocks may still load to this one, or arrive at its barriers
    cluster_arrive_relaxed();
    cluster_wait();
  }
}

}  // namespace kiln
