// How a product on Hopper cuts its work, and the shared memory that this takes (sm_90a).
#pragma once
#include "gemm/sums.cuh"
#include "kiln/hopper/pipeline.cuh"

namespace kiln {

// A block makes tiles of LEFT x RIGHT sums. With SWAP the rows of b are on the left, and the tokens on the right. A
// warpgroup has HALVES times 64 rows on the left, and ACROSS times RIGHT / ACROSS rows on the right. It multiplies one of
// these pieces after the other. With two pieces the sums of one step take few registers, which fp8 needs.
template <bool SWAP, int LEFT, int RIGHT, int BOXES, int STAGES, int SPLIT, int PAIR, int BLOCKS, int HALVES,
          int ACROSS = 1>
struct GemmShape {
  static constexpr bool swap = SWAP;
  static constexpr int left = LEFT, right = RIGHT, split = SPLIT, pair = PAIR, blocks = BLOCKS;
  static constexpr int boxes = BOXES, stages = STAGES;  // a box has 128 bytes of each row
  static constexpr int halves = HALVES, across = ACROSS, pieces = HALVES * ACROSS, width = RIGHT / ACROSS;
  static constexpr int warpgroups = LEFT / 64 / HALVES, loaders = BLOCKS == 1 ? 128 : 32;
  static constexpr int threads = 128 * warpgroups + loaders;
  static constexpr bool through_sums = SWAP || SPLIT > 1;  // whole tiles of sums pass through shared memory
};

// The shared memory of a block. COPIED: threads copy the tokens (cp.async), and not TMA.
template <typename AB, typename Shape, bool SCALED, bool PLAIN, bool COPIED = false>
struct GemmShared {
  using Element = AB;
  static constexpr bool scaled = SCALED, copied = COPIED;
  static constexpr int STAGES = Shape::stages, BK = 128 / sizeof(AB);
  static constexpr int TOKENS = Shape::swap ? Shape::right : Shape::left;
  AB left[STAGES][Shape::boxes][Shape::left * BK];
  AB right[STAGES][Shape::boxes][Shape::right * BK];
  // Sums on their way to the threads that finish them.
  u8 out[Shape::through_sums ? Sums<Shape>::BYTES : PLAIN ? Shape::warpgroups * 2 * 64 * 128 : 16];
  f32 scales[SCALED ? STAGES : 1][SCALED ? (TOKENS + 31) / 32 * 32 : 32];  // of the tokens, for each stage
  Ring<STAGES> ring;
  Barrier received;  // the sums of all blocks
};

}  // namespace kiln
