// The product of a mixture of experts whose weights have 4 bits, with mma.sync, for every architecture from sm_80 on.
//
// A block of threads multiplies the rows of one block of tokens by some rows of an expert's weight, which are the left operand:
// few tokens then fill the right one. SPLIT warps share the rows of the weight, and each takes every SPLIT-th 64 of K.
// All operands come by cp.async through a ring of stages. Codes become 16 bits in registers. The products of a group are summed
// by themselves, and times the scale of the group they are added to the f32 sums, so that no weight is rounded.
#include "kiln/copy_async.cuh"
#include "kiln/mma.cuh"
#include "kiln/pdl.cuh"
#include "moe/experts.cuh"
#include "moe_four_bits/codes.cuh"

namespace kiln {

// Sizes of a block. A warp has TILES tiles of the weight at a time. S is the type of the scales of GROUP elements of K.
template <int BLOCK, Codes CODES, int GROUP, typename S, bool ZEROS, int WARPS, int SPLIT, int TILES,
          int STAGES>
struct PackedShape {
  using Scale = S;
  static constexpr Codes codes = CODES;
  static constexpr bool zeros = ZEROS;
  static constexpr int block = BLOCK, group = GROUP, warps = WARPS, split = SPLIT, tiles = TILES,
                       stages = STAGES;
  static constexpr int threads = WARPS * 32, rows = WARPS / SPLIT * TILES * PACKED_ROWS;
  static constexpr int groups = GROUP < PACKED_K ? PACKED_K / GROUP : 1;  // of a tile
  static constexpr int token_bytes = BLOCK * PACKED_K * 2;                // of a tile of K
  static constexpr int code_bytes = PACKED_WORDS * 4, scale_bytes = groups * PACKED_ROWS * sizeof(S);
  static constexpr int zero_bytes = ZEROS ? groups * PACKED_ROWS : 0,
                       tile_bytes = code_bytes + scale_bytes + zero_bytes;
  // A stage has the tokens of SPLIT tiles of K, then the tiles of each warp.
  static constexpr int stage_bytes = SPLIT * token_bytes + WARPS * TILES * tile_bytes;
  static constexpr int pitch = rows + 4;  // of the sums of a token
  // The blocks that an SM must have registers for; 0: the compiler decides. With many sums it decides for three, and spills.
  static constexpr int blocks = BLOCK * TILES >= 128 ? 256 / threads : 0;
};

template <typename T, typename OUT, int N, int K, int E, typename Shape, typename Finish, bool EARLY_B>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    moe_gemm_w4a16(OUT* d, const T* a, const i32* b, const i32* expert_ids, const i32* sorted_token_ids,
                   const i32* num_tokens_post_padded, i32 rows, i32 k, i32 /*capacity*/, i64 stride_d,
                   i64 stride_a, const typename Shape::Scale* scale_b, const u8* zero_b,
                   decltype(Finish::bias) bias, const f32* weights, f32 alpha, f32 limit) {
  constexpr bool GATED = Finish::gated;
  constexpr int BLOCK = Shape::block, SPLIT = Shape::split, TILES = Shape::tiles, STAGES = Shape::stages;
  constexpr int OWN = GATED ? TILES / 2 : TILES, COLUMNS = Shape::rows / TILES * OWN;  // COLUMNS: of d
  constexpr int TILES_N = N / PACKED_ROWS, TILES_B = GATED ? 2 * TILES_N : TILES_N;
  constexpr int TILES_K = static_cast<int>(ceil_div(K, PACKED_K)),
                STEPS = static_cast<int>(ceil_div(TILES_K, SPLIT));
  constexpr i64 GROUPS = ceil_div(TILES_K * PACKED_K, Shape::group);
  extern __shared__ __align__(1024) u8 bytes[];

  if constexpr (!EARLY_B) pdl_wait();
  const Routing<Layout::routed, BLOCK, E> routing{expert_ids, sorted_token_ids, num_tokens_post_padded, rows};
  const bool used = static_cast<i32>(blockIdx.x) < routing.blocks();
  const ExpertRows block = used ? routing.at(blockIdx.x) : ExpertRows{-1, 0, 0};
  const int first_column = blockIdx.y * COLUMNS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = warp % SPLIT, part = warp / SPLIT;
  f32 sums[TILES][BLOCK / 8][4] = {};

  if (block.expert >= 0) {
    const auto stage_of = [&](int step) { return bytes + step % STAGES * Shape::stage_bytes; };
    const auto tiles_of = [&](int step) {
      return stage_of(step) + SPLIT * Shape::token_bytes + warp * (TILES * Shape::tile_bytes);
    };
    // Returns the j-th tile of this warp in a row of tiles along K. Tiles beyond the last column repeat it: their sums
    // are not stored.
    const auto tile_row = [&](int j) {
      const int tile = smaller(first_column / PACKED_ROWS + part * OWN + j % OWN, TILES_N - 1);
      return block.expert * static_cast<i64>(TILES_B) + tile + j / OWN * TILES_N;
    };
    // Each lane copies 16 bytes of the codes of each tile, and 16 bytes of the scales and zeros of one tile.
    using Scale = typename Shape::Scale;
    constexpr int SCALE_CHUNKS = Shape::scale_bytes / 16, ZERO_CHUNKS = larger(1, Shape::zero_bytes / 16);
    const i32* codes_from[TILES];
#pragma unroll
    for (int j = 0; j < TILES; ++j) codes_from[j] = b + tile_row(j) * TILES_K * PACKED_WORDS + lane * 4;
    const u8* const scales_from =
        reinterpret_cast<const u8*>(scale_b + tile_row(lane / SCALE_CHUNKS % TILES) * GROUPS * PACKED_ROWS) +
        lane % SCALE_CHUNKS * 16;
    const u8* const zeros_from =
        Shape::zeros
            ? zero_b + tile_row(lane / ZERO_CHUNKS % TILES) * GROUPS * PACKED_ROWS + lane % ZERO_CHUNKS * 16
            : nullptr;
    // Begins to copy the tiles of this warp: codes, then scales, then zeros of all of them.
    const auto fill_tiles = [&](int step) {
      const u32 at = step * SPLIT + slice, group = at * PACKED_K / Shape::group;
      const bool exists = at < TILES_K;
      const u32 to = shared_address(tiles_of(step)) + lane * 16;
#pragma unroll
      for (int j = 0; j < TILES; ++j)
        copy_async_or_zero(to + j * Shape::code_bytes, codes_from[j] + at * PACKED_WORDS, exists);
      constexpr int SCALES_AT = TILES * Shape::code_bytes, ZEROS_AT = SCALES_AT + TILES * Shape::scale_bytes;
      if (lane < TILES * SCALE_CHUNKS)
        copy_async_or_zero(to + SCALES_AT, scales_from + group * (PACKED_ROWS * sizeof(Scale)), exists);
      if constexpr (Shape::zeros) {
        if (lane < TILES * ZERO_CHUNKS)
          copy_async_or_zero(to + ZEROS_AT, zeros_from + group * PACKED_ROWS, exists);
      }
    };

    // The chunks of 8 elements of tokens that this thread copies: the same chunk of some rows. With a warp for each part of K, a
    // warp copies what it multiplies, and waits for no other warp.
    constexpr bool ALONE = SPLIT == Shape::warps;
    constexpr int CHUNKS = SPLIT * PACKED_K / 8, COPIES = BLOCK * CHUNKS / Shape::threads;
    const int chunk = ALONE ? warp * 8 + lane % 8 : threadIdx.x % CHUNKS;
    const int first_row = ALONE ? lane / 8 : threadIdx.x / CHUNKS;
    const auto token_at = [&](int row,
                              int chunk) {  // odd rows begin with their second half: no conflicts of banks
      return row * (PACKED_K * 2) + ((chunk ^ (row % 2 * 4)) * 16);
    };
    const T* tokens_from[COPIES];
    bool present[COPIES];
    const auto fill_tokens = [&](int step) {
      const u32 to = shared_address(stage_of(step)) + chunk / 8 * Shape::token_bytes;
      const u32 at = step * (SPLIT * PACKED_K);
#pragma unroll
      for (int i = 0; i < COPIES; ++i)
        copy_async_or_zero(to + token_at(first_row + i * (Shape::threads / CHUNKS), chunk % 8),
                           tokens_from[i] + at, present[i] && at + chunk * 8 < K);
    };

#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
      if (step < STEPS) fill_tiles(step);
    }
    if constexpr (EARLY_B) pdl_wait();
    pdl_launch_dependents();
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const i32 row = routing.row(block, first_row + i * (Shape::threads / CHUNKS));
      present[i] = row >= 0;
      tokens_from[i] = a + (present[i] ? row / k * stride_a : 0) + chunk * 8;
    }
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
      if (step < STEPS) fill_tokens(step);
      copy_async_commit();
    }

    const int g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int step = 0; step < STEPS; ++step) {
      copy_async_wait<STAGES - 2>();
      if constexpr (ALONE) {
        __syncwarp();
      } else {
        __syncthreads();
      }
      if (step + STAGES - 1 < STEPS) {
        fill_tiles(step + STAGES - 1);
        fill_tokens(step + STAGES - 1);
      }
      copy_async_commit();
      const u8 *own = tiles_of(step), *right = stage_of(step) + slice * Shape::token_bytes;
      const u8 *scales = own + TILES * Shape::code_bytes, *zeros = scales + TILES * Shape::scale_bytes;
      u32 words[TILES][4];
#pragma unroll
      for (int j = 0; j < TILES; ++j) {
        const Vec<u32, 4> v =
            load_shared<4>(reinterpret_cast<const u32*>(own + j * Shape::code_bytes) + lane * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[j][i] = v.word[i];
      }
#pragma unroll
      for (int group = 0; group < Shape::groups; ++group) {
        constexpr int HALVES = 2 / Shape::groups;  // of 32 of K
        using Weights = Unpacked<Shape::codes, T>;
        u32 left[TILES][2 * HALVES][4];
        f32 scale[TILES][2];
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
          const int pair = ((j * Shape::groups + group) * 8 + g) * 2;  // rows g and g + 8 are neighbours
          factors(load_shared<2>(reinterpret_cast<const Scale*>(scales) + pair), scale[j]);
          u32 zero = 0x0808u;
          if constexpr (Shape::zeros) zero = load_shared<2>(zeros + pair).word[0];
          const u32 shift = Weights::shift_of(zero & 0xff), shift_8 = Weights::shift_of(zero >> 8 & 0xff);
#pragma unroll
          for (int i = 0; i < 2 * HALVES; ++i)
            Weights::values(left[j][i], words[j][group * 2 * HALVES + i], shift, shift_8);
        }
#pragma unroll
        for (int n = 0; n < BLOCK / 8; ++n) {
          f32 products[TILES][4] = {};
#pragma unroll
          for (int half = 0; half < HALVES; ++half) {
            const Vec<u32, 4> x = load_shared<4>(
                reinterpret_cast<const u32*>(right + token_at(n * 8 + g, (group * HALVES + half) * 4 + t)));
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
              for (int j = 0; j < TILES; ++j)
                mma<T>(products[j], left[j][half * 2 + i], x.word[2 * i], x.word[2 * i + 1]);
            }
          }
#pragma unroll
          for (int j = 0; j < TILES; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[j][n][i] += products[j][i] * scale[j][i / 2];
          }
        }
      }
    }
    copy_async_wait<0>();
    __syncthreads();  // the memory of the ring is free
  } else {
    if constexpr (EARLY_B) pdl_wait();
    pdl_launch_dependents();
    if (!used) return;
  }

  // The sums go through shared memory: [SPLIT][BLOCK][rows of the weight]. With a gate, the second half of the rows is the
  // other half of the weight.
  f32* const all = reinterpret_cast<f32*>(bytes);
#pragma unroll
  for (int j = 0; j < TILES; ++j) {
    const int column = j / OWN * COLUMNS + (part * OWN + j % OWN) * PACKED_ROWS + lane / 4;
#pragma unroll
    for (int n = 0; n < BLOCK / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        all[(slice * BLOCK + n * 8 + lane % 4 * 2 + i % 2) * Shape::pitch + column + i / 2 * 8] =
            sums[j][n][i];
    }
  }
  __syncthreads();
  constexpr int W = 4;
  const Finish finish{bias, alpha, limit};
#pragma unroll 1
  for (int item = threadIdx.x; item < BLOCK * COLUMNS / W; item += Shape::threads) {
    const int token = item / (COLUMNS / W), at = item % (COLUMNS / W) * W, column = first_column + at;
    const i64 row = routing.row(block, token);
    if (row < 0 || column >= N) continue;
    f32 x[W] = {}, other[W] = {};
    for (int s = 0; s < SPLIT; ++s) {
      const f32* from = all + (s * BLOCK + token) * Shape::pitch + at;
      f32 more[W];
      widen(load_shared<W>(from), more);
      for (int i = 0; i < W; ++i) x[i] += more[i];
      if constexpr (GATED) {
        widen(load_shared<W>(from + COLUMNS), more);
        for (int i = 0; i < W; ++i) other[i] += more[i];
      }
    }
    if (block.expert >= 0)
      finish.finish(x, other, block.expert, Finish::weighted ? load_one(weights + row) : 1.0f, column);
    store(d + row * stride_d + column, narrow<OUT>(x));
  }
}

}  // namespace kiln
