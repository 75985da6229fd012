// d = epilogue(a b^T) on Hopper: a [batch, m, K], b [batch, N, K], d [batch, m, N]; sums are in f32.
//
// One operand is on the left of the tensor cores' products, where a warpgroup takes 64 rows. The other one is on the
// right, where a product takes any multiple of 8 rows. Few tokens are on the right (SWAP), because padding to 8 costs
// less than padding to 64; each product then makes a part of the transposed result.
//
// A block makes tiles of LEFT x RIGHT sums. One thread loads operands by TMA into a ring of stages, and the warpgroups
// of the left rows multiply. Blocks of a cluster share work in one of two ways:
// - SPLIT: each block multiplies a part of K, and all of them add the parts of one tile, in the order of K.
// - PAIR: two blocks have neighbouring left rows, and each loads half of the right rows for both.
#include "gemm/epilogue.cuh"
#include "gemm/multiply.cuh"
#include "gemm/sums.cuh"
#include "kiln/cluster.cuh"
#include "kiln/hopper/pipeline.cuh"
#include "kiln/hopper/results.cuh"
#include "kiln/hopper/tiles.cuh"
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/hopper/wgmma.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

template <typename AB, typename OUT, int N, int K, typename Shape, typename Finish, bool EARLY_B>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_d, OUT* d, i32 m, i32 batch, i64 stride_d, i64 stride_d_batch,
         const f32* scale_a, i64 stride_scale_a, const f32* scale_b, const OUT* bias, const OUT* residual,
         i64 stride_residual, i64 stride_residual_batch) {
  constexpr bool SWAP = Shape::swap, GATED = Finish::gated, BLOCKWISE = Finish::scales == Factors::block;
  constexpr int LEFT = Shape::left, RIGHT = Shape::right, STAGES = Shape::stages, SPLIT = Shape::split;
  constexpr int PAIR = Shape::pair, HALVES = Shape::halves, WARPGROUPS = Shape::warpgroups,
                LOADER = 128 * WARPGROUPS;
  using Memory = GemmShared<AB, Shape, BLOCKWISE, Finish::plain>;
  constexpr int BOXES = Shape::boxes, BK = Memory::BK, STEPS = static_cast<int>(ceil_div(K, BK * BOXES));
  constexpr int TOKENS = Memory::TOKENS;
  constexpr int PARTS = scale_parts<Shape, GATED>;
  constexpr int B_ROWS = SWAP ? LEFT : RIGHT, COLUMNS = GATED ? B_ROWS / 2 : B_ROWS;  // of b, and of d
  static_assert(SPLIT == 1 || PAIR == 1, "a cluster either splits K or shares rows");
  static_assert(SPLIT <= STEPS, "each block of a cluster needs a part of K");
  static_assert(SPLIT == 1 || Sums<Shape>::BYTES <= STAGES * BOXES * (LEFT + RIGHT) * 128,
                "the parts need more stages");
  extern __shared__ __align__(1024) u8 bytes[];
  Memory& shared = *reinterpret_cast<Memory*>(bytes);

  const int rank = SPLIT * PAIR > 1 ? static_cast<int>(cluster_rank()) : 0;
  const int cluster = blockIdx.x / (SPLIT * PAIR), clusters = gridDim.x / (SPLIT * PAIR);
  const int begin = SPLIT > 1 ? STEPS * rank / SPLIT : 0;
  const int end = SPLIT > 1 ? STEPS * (rank + 1) / SPLIT : STEPS;
  // Tiles of left and right rows; a cluster takes PAIR of them. All batches are one matrix after the other.
  const int token_tiles = static_cast<int>(ceil_div(m, TOKENS)),
            b_tiles = static_cast<int>(ceil_div(N, COLUMNS));
  const Tiles<8> tiles{static_cast<int>(ceil_div(SWAP ? b_tiles : token_tiles, PAIR)),
                       SWAP ? token_tiles : b_tiles};

  pdl_launch_dependents();
  if (threadIdx.x == 0) {
    if constexpr (SPLIT > 1) {
      shared.received.init(1);
      shared.received.arrive_expecting(Sums<Shape>::SENT);
    }
    shared.ring.init(4 * WARPGROUPS * PAIR);
  }
  if (threadIdx.x == LOADER) tma_prefetch(map_b), tma_prefetch(map_a);
  if constexpr (PAIR > 1) {  // the other block's loads come to this block's barriers
    cluster_arrive_relaxed();
    cluster_wait();
  } else {
    if constexpr (SPLIT > 1) cluster_arrive_relaxed();  // the wait comes before the first block sends
    __syncthreads();
  }

  struct Place {
    int left, right, batch;  // numbers of tiles
  };
  const auto place = [&](int tile) {
    Place at;
    at.batch = tile / tiles.count();
    tiles.place(tile - at.batch * tiles.count(), at.left, at.right);
    at.left = at.left * PAIR + (PAIR > 1 ? rank : 0);
    return at;
  };
  const int last = tiles.count() * batch;
  RingPlace at;

  const auto scales_of = [&](const Place& p) {  // of a's rows; none in the tile that a pair has too many
    return larger(0,
                  smaller(TOKENS, (m + 3) / 4 * 4 - (SWAP ? p.right : p.left) * TOKENS));  // whole 16 bytes
  };

  if (threadIdx.x >= LOADER) {
    if constexpr (Shape::blocks == 1) give_registers_to<40>();
    if (threadIdx.x == LOADER) {
      // Bytes of a stage. The last tokens may have fewer scales than a tile.
      const auto stage_bytes = [&](const Place& p) {
        return BOXES * (LEFT + RIGHT) * 128 + (BLOCKWISE ? scales_of(p) * 4 : 0);
      };
      // Loads rows of an operand. Half of the rows may be another box: the other half of a gated b, or the part that this
      // block loads for both of a pair.
      const auto load_b = [&](const Place& p, int stage, int step) {
        Barrier& full = shared.ring.full[stage];
        const int y = (SWAP ? p.left : p.right) * COLUMNS;
        constexpr L2 KEEP = SWAP ? L2::evict_first : L2::normal;
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
          const int x = (step * BOXES + box) * BK;
          AB* to = SWAP ? shared.left[stage][box] : shared.right[stage][box];
          if constexpr (PAIR > 1 && !SWAP) {
            const int half = rank * (B_ROWS / 2);
            tma_load_to(3, to + half * BK, map_b, full, x, GATED ? y + rank * N : y + half, p.batch, KEEP);
          } else {
            tma_load(to, map_b, full, x, y, p.batch, KEEP);
            if constexpr (GATED) tma_load(to + B_ROWS / 2 * BK, map_b, full, x, N + y, p.batch, KEEP);
          }
        }
      };
      const auto load_a = [&](const Place& p, int stage, int step) {
        Barrier& full = shared.ring.full[stage];
        const int y = (SWAP ? p.right : p.left) * TOKENS;
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
          const int x = (step * BOXES + box) * BK;
          AB* to = SWAP ? shared.right[stage][box] : shared.left[stage][box];
          if constexpr (PAIR > 1 && SWAP) {
            const int half = rank * (TOKENS / 2);
            tma_load_to(3, to + half * BK, map_a, full, x, y + half, p.batch);
          } else {
            tma_load(to, map_a, full, x, y, p.batch);
          }
        }
        if constexpr (BLOCKWISE) {
          if (const int count = scales_of(p))
            bulk_load(shared.scales[stage], scale_a + step * stride_scale_a + y, count * 4, full);
        }
      };
      int ahead = 0;  // stages that have b already
      if constexpr (EARLY_B) {
        RingPlace early;
        if (cluster < last) ahead = smaller(STAGES, end - begin);
        const Place p = place(cluster);
#pragma unroll 1
        for (int i = 0; i < ahead; ++i, shared.ring.next(early)) {
          shared.ring.begin(early, stage_bytes(p));
          load_b(p, early.stage, begin + i);
        }
      }
      pdl_wait();
      for (int tile = cluster; tile < last; tile += clusters, ahead = 0) {
        const Place p = place(tile);
#pragma unroll 1  // a short K would be unrolled, and spill
        for (int step = begin; step < end; ++step, shared.ring.next(at)) {
          if (step - begin >= ahead) {
            shared.ring.begin(at, stage_bytes(p));
            load_b(p, at.stage, step);
          }
          load_a(p, at.stage, step);
        }
      }
    }
    __syncwarp();
  } else {
    if constexpr (Shape::blocks == 1)
      take_registers_to<WARPGROUPS <= 2 ? 232 : WARPGROUPS == 3 ? 152 : 104>();
    pdl_wait();
    const int group = warpgroup(), lane = threadIdx.x % 32;
    const auto release = [&](int stage) {
      if constexpr (PAIR > 1) {
        if (lane < PAIR) cluster_arrive_at(shared.ring.empty[stage], lane);
      } else {
        if (lane == 0) shared.ring.release(stage);
      }
    };
    int turn = 0;  // of the tiles on their way out
    for (int tile = cluster; tile < last; tile += clusters) {
      const Place p = place(tile);
      const int first_token = (SWAP ? p.right : p.left) * TOKENS,
                first_column = (SWAP ? p.left : p.right) * COLUMNS;
      f32 sums[HALVES][RIGHT / 2];
      const f32* factors[PARTS] = {};
      if constexpr (BLOCKWISE) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
          const int row = scaled_row<Shape, GATED, N>(first_column, group, i);
          factors[i] = scale_b + static_cast<i64>(row / 128) * STEPS;
        }
      }
      multiply<Shape>(sums, shared, at, group, begin, end, factors, release);

      const Finish finish{scale_a, scale_b, bias, residual + p.batch * stride_residual_batch,
                          stride_residual};
      OUT* const out = d + p.batch * stride_d_batch;
      const auto finish_and_store = [&](int token, int column, auto& x, auto& up) {
        token += first_token, column += first_column;
        if (token >= m || column >= N) return;
        finish.finish(x, up, token, column);
        store(out + token * stride_d + column, narrow<OUT>(x));
      };
      if constexpr (Shape::through_sums) {
        using Parts = Sums<Shape>;
        f32* const out_sums = reinterpret_cast<f32*>(shared.out);
        if constexpr (SPLIT > 1) {
          f32* const own = reinterpret_cast<f32*>(bytes);  // where the operands were
          cluster_wait();                                  // all blocks can receive
          sync_threads(1, 128 * WARPGROUPS);               // all warps have read the operands
          Parts::put(own, sums[0], group);
          fence_async_shared();
          sync_threads(1, 128 * WARPGROUPS);
          if (threadIdx.x < SPLIT && threadIdx.x != rank)
            Parts::send(out_sums, own, rank, threadIdx.x, shared.received);
          shared.received.wait(0);
          Parts::template each<GATED>(own, out_sums, rank, finish_and_store);
        } else {
          if (tile != cluster)
            sync_threads(1, 128 * WARPGROUPS);  // the results of the tile before have been read
          Parts::put(out_sums, sums[0], group);
          sync_threads(1, 128 * WARPGROUPS);
          Parts::template each<GATED>(out_sums, nullptr, 0, finish_and_store);
        }
      } else if constexpr (Finish::plain) {
        constexpr int WIDE = columns_together(RIGHT);
#pragma unroll
        for (int c = 0; c < HALVES * RIGHT; c += WIDE) {
          const int half = c / RIGHT, column = c % RIGHT;
          OUT* to = reinterpret_cast<OUT*>(shared.out) + (2 * group + turn) * 64 * 64;
          turn ^= 1;
          const bool first = threadIdx.x % 128 == 0;
          if (first) tma_store_wait_read<1>();  // the store before the last has read its memory
          sync_threads(group + 1, 128);
          store_columns<OUT, WIDE>(to, sums[half] + column / 2);
          fence_async_shared();
          sync_threads(group + 1, 128);
          if (first) {
            tma_store(map_d, to, first_column + column, first_token + (group * HALVES + half) * 64, p.batch);
            tma_store_commit();
          }
        }
      } else {
        using Part = Columns<GATED, RIGHT>;
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
          const int row = (group * HALVES + half) * 64 + wgmma_row();
          Part::template finish<Finish::slow_to_compile>(sums[half],
                                                         [&](int second, int column, auto& x, auto& up) {
                                                           finish_and_store(row + second * 8, column, x, up);
                                                         });
        }
      }
    }
    if (threadIdx.x % 128 == 0) tma_store_wait_read<0>();  // shared memory ends with the block
  }
  if constexpr (SPLIT > 1) {
    if (threadIdx.x >= LOADER) cluster_wait();  // of the first arrival
  }
  if constexpr (SPLIT > 1 ||
                PAIR > 1) {  // other blocks may still receive from this one, load to it or release stages
    cluster_arrive_relaxed();
    cluster_wait();
  }
}

}  // namespace kiln
