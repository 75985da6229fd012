// d = epilogue(a b^T) for a mixture of experts on Hopper: each block of rows has the b of its expert.
//
// The grid is constant, and blocks take tiles of columns and rows as the routing on the device says. So a captured graph
// replays any routing. The kernel is gemm's (gemm/hopper.cu), with two differences:
// - The lanes of a warp load the tokens of a tile, each a row, because the rows of an expert lie anywhere in a. Places
//   without a row load nothing. What their memory has from before only meets sums that nobody stores.
// - Results go to the rows that the routing names.
// A PAIR of blocks, a cluster, has neighbouring columns of the same rows, and each loads half of the tokens for both.
#include "gemm/multiply.cuh"
#include "gemm/sums.cuh"
#include "kiln/cluster.cuh"
#include "kiln/copy_async.cuh"
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

template <typename AB, typename OUT, int N, int K, int E, Layout LAYOUT, typename Shape, Factors SCALES,
          typename Finish, bool EARLY_B>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    moe_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, OUT* d,
             const i32* expert_ids, const i32* sorted_token_ids, const i32* num_tokens_post_padded, i32 rows,
             i32 k, i64 stride_d, const f32* scale_a, i64 stride_scale_a, i64 step_scale_a,
             const f32* scale_b, const typename Finish::Bias* bias, const f32* weights, f32 alpha, f32 limit,
             f32* scale_d, i64 stride_scale_d) {
  constexpr bool SWAP = Shape::swap, GATED = Finish::gated, BLOCKWISE = SCALES == Factors::block;
  constexpr int LEFT = Shape::left, RIGHT = Shape::right, WARPGROUPS = Shape::warpgroups,
                LOADER = 128 * WARPGROUPS;
  using Memory = GemmShared<AB, Shape, BLOCKWISE, false>;
  constexpr int BK = Memory::BK, STEPS = static_cast<int>(ceil_div(K, BK)), BLOCK = Memory::TOKENS;
  constexpr int B_ROWS = SWAP ? LEFT : RIGHT, COLUMNS = GATED ? B_ROWS / 2 : B_ROWS;
  constexpr int PARTS = scale_parts<Shape, GATED>, PAIR = Shape::pair;
  static_assert(PAIR == 1 || BLOCK >= 64, "a pair shares many tokens");
  using Rows = Routing<LAYOUT, BLOCK, E>;
  using Used = UsedBlocks<LAYOUT == Layout::masked ? E : 1, BLOCK>;
  struct All {
    Memory memory;
    Used used;
  };
  extern __shared__ __align__(1024) u8 bytes[];
  Memory& shared = reinterpret_cast<All*>(bytes)->memory;
  Used& used = reinterpret_cast<All*>(bytes)->used;

  const int rank = PAIR > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int cluster = blockIdx.x / PAIR, clusters = gridDim.x / PAIR;
  if (threadIdx.x == 0) shared.ring.init(4 * WARPGROUPS * PAIR, BLOCKWISE ? 33 : 1);
  if (threadIdx.x == LOADER) tma_prefetch(map_b), tma_prefetch(map_a);
  if constexpr (!EARLY_B) pdl_wait();
  if constexpr (LAYOUT == Layout::masked) {
    if (threadIdx.x < 32) used.count(expert_ids, rows);
  }
  if constexpr (PAIR > 1) {  // the other block's loads come to this block's barriers
    cluster_arrive_relaxed();
    cluster_wait();
  }
  __syncthreads();

  const Rows routing{expert_ids, sorted_token_ids, num_tokens_post_padded, rows};
  const int of_rows =
      LAYOUT == Layout::masked ? used.ends[LAYOUT == Layout::masked ? E - 1 : 0] : routing.blocks();
  const Tiles<8> tiles{of_rows, static_cast<int>(ceil_div(N, COLUMNS * PAIR))};
  // Returns the rows of a tile, and its first column.
  const auto place = [&](int tile, int& column) {
    int block;
    tiles.place(tile, block, column);
    column = (column * PAIR + rank) * COLUMNS;
    if constexpr (LAYOUT == Layout::masked) block = used.nth(block, static_cast<i32>(ceil_div(rows, BLOCK)));
    return routing.at(block);
  };
  RingPlace at;

  if (threadIdx.x >= LOADER) {
    if constexpr (Shape::blocks == 1) give_registers_to<56>();
    if (threadIdx.x < LOADER + 32) {
      constexpr int OF_LANE = static_cast<int>(ceil_div(BLOCK, 32));  // rows of a lane
      constexpr u32 B_BYTES = B_ROWS * 128;
      const int lane = threadIdx.x % 32;
      const auto load_b = [&](int stage, int step, int column, i32 expert) {
        constexpr L2 KEEP = SWAP ? L2::evict_first : L2::normal;
        AB* to = SWAP ? shared.left[stage][0] : shared.right[stage][0];
        tma_load(to, map_b, shared.ring.full[stage], step * BK, column, expert, KEEP);
        if constexpr (GATED)
          tma_load(to + B_ROWS / 2 * BK, map_b, shared.ring.full[stage], step * BK, N + column, expert, KEEP);
      };
      bool early = EARLY_B;
      for (int tile = cluster; tile < tiles.count(); tile += clusters) {
        int column;
        const ExpertRows of = place(tile, column);
        if (of.expert < 0) continue;
        i32 row[OF_LANE];  // of a
        int loads = 0;
#pragma unroll
        for (int i = 0; i < OF_LANE; ++i) {
          row[i] = lane + 32 * i < BLOCK ? routing.row(of, lane + 32 * i) : -1;
          if (LAYOUT == Layout::routed && row[i] >= 0) row[i] /= k;
          loads += row[i] >= 0;
        }
        loads = __reduce_add_sync(~0u, loads);
        const u32 stage_bytes = B_BYTES + loads * 128;
        int ahead = 0;  // stages that have b already
        if (early) {
          ahead = smaller(Shape::stages, STEPS);
          for (int step = 0; lane == 0 && step < ahead; ++step) {
            shared.ring.full[step].arrive_expecting(stage_bytes);
            load_b(step, step, column, of.expert);
          }
          pdl_wait();
          early = false;
        }
#pragma unroll 1
        for (int step = 0; step < STEPS; ++step, shared.ring.next(at)) {
          Barrier& full = shared.ring.full[at.stage];
          // One lane waits. Another lane's wait might come after the phase has ended twice, and would never end.
          if (lane == 0 && step >= ahead) {
            shared.ring.begin(at, stage_bytes);
            load_b(at.stage, step, column, of.expert);
          }
          __syncwarp();
#pragma unroll
          for (int i = 0; i < OF_LANE; ++i) {
            if (row[i] < 0) continue;
            AB* to = (SWAP ? shared.right[at.stage][0] : shared.left[at.stage][0]) + (lane + 32 * i) * BK;
            if constexpr (PAIR == 1) {
              tma_load(to, map_a, full, step * BK, row[i]);
            } else if (i % PAIR == rank) {
              tma_load_to(3, to, map_a, full, step * BK, row[i]);
            }
            if constexpr (BLOCKWISE)
              copy_async<1>(&shared.scales[at.stage][lane + 32 * i],
                            scale_a + row[i] * stride_scale_a + step * step_scale_a);
          }
          if constexpr (BLOCKWISE) copy_async_arrive(&full);
        }
      }
    }
    __syncwarp();
  } else {
    if constexpr (Shape::blocks == 1) take_registers_to<WARPGROUPS <= 2 ? 224 : 104>();
    if constexpr (EARLY_B) pdl_wait();
    pdl_launch_dependents();
    const int group = warpgroup(), lane = threadIdx.x % 32;
    const auto release = [&](int stage) {
      if constexpr (PAIR > 1) {
        if (lane < PAIR) cluster_arrive_at(shared.ring.empty[stage], lane);
      } else {
        if (lane == 0) shared.ring.release(stage);
      }
    };
    const Finish finish{bias, weights, alpha, limit};
    for (int tile = cluster; tile < tiles.count(); tile += clusters) {
      int first_column;
      const ExpertRows of = place(tile, first_column);
      f32 sums[RIGHT / 2] = {};
      if (of.expert >= 0) {
        const f32* factors[PARTS] = {};
        if constexpr (BLOCKWISE) {
#pragma unroll
          for (int i = 0; i < PARTS; ++i) {
            const int row = scaled_row<Shape, GATED, N>(first_column, group, i);
            factors[i] = scale_b + (of.expert * ceil_div(GATED ? 2 * N : N, 128) + row / 128) * STEPS;
          }
        }
        multiply<Shape>(sums, shared, at, group, 0, STEPS, factors, release);
      }

      const auto finish_and_store = [&](int token, int column, f32(&x)[4], f32(&other)[4]) {
        const i32 row = routing.row(of, token);
        column += first_column;
        if (row < 0 || column >= N) return;
        if (of.expert >= 0) finish.finish(x, other, of.expert, row, column);
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
          if (lane == 0) scale_d[row * stride_scale_d + column / 128] = scale;
        }
      };
      if constexpr (SWAP) {
        using Parts = Sums<Shape>;
        f32* const memory = reinterpret_cast<f32*>(shared.out);
        if (tile != cluster)
          sync_threads(1, 128 * WARPGROUPS);  // the results of the tile before have been read
        Parts::put(memory, sums, group);
        sync_threads(1, 128 * WARPGROUPS);
        Parts::template each<GATED>(memory, 0, finish_and_store);
      } else {  // some columns at a time, or some and their gates
        using Part = Columns<GATED, RIGHT>;
        f32* const memory = reinterpret_cast<f32*>(shared.out) + group * COLUMNS_FLOATS;
        Part::template finish<Finish::slow_to_compile>(memory, sums, group, finish_and_store);
      }
    }
  }
  if constexpr (PAIR > 1) {  // the other block may still load to this one, or release its stages
    cluster_arrive_relaxed();
    cluster_wait();
  }
}

}  // namespace kiln
