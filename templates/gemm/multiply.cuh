// The sums of a warpgroup's 64 rows of a tile on Hopper: products of the stages of a ring, one after the other (sm_90a).
#pragma once
#include "gemm/shape.cuh"
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/hopper/wgmma.cuh"

namespace kiln {

// The number of scales that a warpgroup's columns of b have for 128 of K: the halves of a gated b have one each.
template <typename Shape, bool GATED>
inline constexpr int scale_parts = GATED && !Shape::swap ? 2 : 1;

// Returns a row of b whose scale holds for `part` of the sums of warpgroup `group`. The tile begins at column
// `first_column` of the N columns of d.
template <typename Shape, bool GATED, int N>
__device__ __forceinline__ int scaled_row(int first_column, int group, int part) {
  constexpr int HALF = larger(1, Shape::warpgroups / 2);
  const int row = !Shape::swap ? first_column + part * N
                  : GATED      ? first_column + group / HALF * N + group % HALF * 64
                               : first_column + group * 64;
  return smaller(row, GATED ? 2 * N - 1 : N - 1);
}

// sums = the products of steps `begin` to `end` of K, which the stages from `at` on have or will have. `release(stage)`
// tells the loader that this warp has read a stage. With fp8 scales of blocks, `factors` points at the scales of b for
// each step of K, and `shared.scales` has the scales of the tokens. All threads of
// warpgroup `group` call it.
template <typename Shape, typename Shared, int PARTS, typename Release>
__device__ __forceinline__ void multiply(f32 (&sums)[Shape::right / 2], Shared& shared, RingPlace& at,
                                         int group, int begin, int end, const f32* const (&factors)[PARTS],
                                         Release release) {
  using AB = typename Shared::Element;
  constexpr int RIGHT = Shape::right, STAGES = Shape::stages;
  const int lane = threadIdx.x % 32;
  const auto products = [&](f32(&to)[RIGHT / 2], bool add) {
    wgmma_begin();
#pragma unroll
    for (int box = 0; box < Shape::boxes; ++box) {
      const u64 l = wgmma_operand<128>(shared.left[at.stage][box] + group * 64 * Shared::BK);
      const u64 r = wgmma_operand<128>(shared.right[at.stage][box]);
#pragma unroll
      for (int k = 0; k < 128; k += 32)
        wgmma<AB, RIGHT>(to, l + wgmma_along(k), r + wgmma_along(k), add || box > 0 || k > 0);
    }
    wgmma_commit();
  };
  if constexpr (sizeof(AB) == 2) {
#pragma unroll 1
    for (int step = begin; step < end; ++step, shared.ring.next(at)) {
      shared.ring.wait(at);
      products(sums, step > begin);
      wgmma_wait<1>();  // the products of the stage before have ended
      if (step > begin) release((at.stage + STAGES - 1) % STAGES);
    }
    wgmma_wait<0>();
    wgmma_results(sums);
    release((at.stage + STAGES - 1) % STAGES);
  } else {
    // Sums of fp8 products keep about 14 bits, so each stage (128 of K) is added to f32 sums.
#pragma unroll
    for (int i = 0; i < RIGHT / 2; ++i) sums[i] = 0.0f;
    f32 factor[PARTS];
    if constexpr (Shared::scaled) {
#pragma unroll
      for (int i = 0; i < PARTS; ++i) factor[i] = load_one(factors[i] + begin);
    }
#pragma unroll 1
    for (int step = begin; step < end; ++step, shared.ring.next(at)) {
      f32 next[PARTS];
      if constexpr (Shared::scaled) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) next[i] = load_one(factors[i] + smaller(step + 1, end - 1));
      }
      shared.ring.wait(at);
      f32 part[RIGHT / 2];
      products(part, false);
      [[maybe_unused]] const f32* token_scale = shared.scales[at.stage];
      if constexpr (Shared::scaled && !Shape::swap) {
        const int row = group * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        const f32 up = token_scale[row], down = token_scale[row + 8];
        wgmma_wait<0>();
        wgmma_results(part);
        release(at.stage);
#pragma unroll
        for (int i = 0; i < RIGHT / 2; ++i)
          sums[i] += part[i] * ((i % 4 < 2 ? up : down) * factor[PARTS == 2 && i >= RIGHT / 4 ? 1 : 0]);
      } else if constexpr (Shared::scaled) {
        wgmma_wait<0>();
        wgmma_results(part);
#pragma unroll
        for (int i = 0; i < RIGHT / 2; i += 4) {
          const float2 s = *reinterpret_cast<const float2*>(token_scale + i * 2 + lane % 4 * 2);
          const f32 left = s.x * factor[0], right = s.y * factor[0];
          sums[i] += part[i] * left, sums[i + 1] += part[i + 1] * right;
          sums[i + 2] += part[i + 2] * left, sums[i + 3] += part[i + 3] * right;
        }
        __syncwarp();
        release(at.stage);
      } else {
        wgmma_wait<0>();
        wgmma_results(part);
        release(at.stage);
#pragma unroll
        for (int i = 0; i < RIGHT / 2; ++i) sums[i] += part[i];
      }
      if constexpr (Shared::scaled) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) factor[i] = next[i];
      }
    }
  }
}

}  // namespace kiln
