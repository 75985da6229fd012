// The sums of a warpgroup's 64 rows of a tile on Hopper: products of the stages of a ring, one after the other (sm_90a).
#pragma once
#include "gemm/shape.cuh"
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/hopper/wgmma.cuh"

namespace kiln {

// The number of scales that a warpgroup's columns of b have for 128 of K: one for each half of a gated b, or for each 128
// columns.
template <typename Shape, bool GATED>
inline constexpr int scale_parts = GATED && !Shape::swap ? 2 : Shape::across;

// Returns a row of b whose scale holds for `part` of the sums of warpgroup `group`. The tile begins at column
// `first_column` of the N columns of d.
template <typename Shape, bool GATED, int N>
__device__ __forceinline__ int scaled_row(int first_column, int group, int part) {
  constexpr int HALF = larger(1, Shape::warpgroups / 2);
  const int row = !Shape::swap ? first_column + part * (GATED ? N : 128)
                  : GATED      ? first_column + group / HALF * N + group % HALF * 64
                               : first_column + group * 64;
  return smaller(row, GATED ? 2 * N - 1 : N - 1);
}

// sums[piece] = the products of steps `begin` to `end` of K, which the stages from `at` on have or will have. `release(stage)`
// tells the loader that this warp has read a stage. With fp8 scales of blocks, `factors` points at the scales of b for
// each step of K, and `shared.scales` has the scales of the tokens. All threads of warpgroup `group` call it.
template <typename Shape, typename Shared, int PARTS, typename Release>
__device__ __forceinline__ void multiply(f32 (&sums)[Shape::pieces][Shape::width / 2], Shared& shared,
                                         RingPlace& at, int group, int begin, int end,
                                         const f32* const (&factors)[PARTS], Release release) {
  using AB = typename Shared::Element;
  constexpr int RIGHT = Shape::width, STAGES = Shape::stages, HALVES = Shape::halves, ACROSS = Shape::across,
                PIECES = Shape::pieces;
  const int lane = threadIdx.x % 32;
  // Waits until the stage at `place` is full, and wgmma sees it.
  const auto wait_for = [&](const RingPlace& place) {
    shared.ring.wait(place);
    if constexpr (Shared::copied) fence_async_shared();  // now wgmma sees what threads copied
  };
  // Begins the products of a piece with the stage at `place`, once it is full. If `waited`, wait_for() was called.
  const auto begin_products = [&](f32(&to)[RIGHT / 2], const RingPlace& place, bool add, int piece = 0,
                                  bool waited = false) {
    const int half = piece / ACROSS, side = piece % ACROSS;
    if (piece == 0 && !waited) wait_for(place);
    wgmma_begin();
#pragma unroll
    for (int box = 0; box < Shape::boxes; ++box) {
      const u64 l =
          wgmma_operand<128>(shared.left[place.stage][box] + (group * HALVES + half) * 64 * Shared::BK);
      const u64 r = wgmma_operand<128>(shared.right[place.stage][box] + side * RIGHT * Shared::BK);
#pragma unroll
      for (int k = 0; k < 128; k += 32)
        wgmma<AB, RIGHT>(to, l + wgmma_along(k), r + wgmma_along(k), add || box > 0 || k > 0);
    }
    wgmma_commit();
  };
  if constexpr (sizeof(AB) == 2) {
#pragma unroll 1
    for (int step = begin; step < end; ++step, shared.ring.next(at)) {
      begin_products(sums[0], at, step > begin);
      wgmma_wait<1>();  // the products of the stage before have ended
      if (step > begin) release((at.stage + STAGES - 1) % STAGES);
    }
    wgmma_wait<0>();
    wgmma_results(sums[0]);
    release((at.stage + STAGES - 1) % STAGES);
  } else {
    // Sums of fp8 products keep about 14 bits, so each stage (128 of K) is added to f32 sums.
#pragma unroll
    for (int i = 0; i < PIECES * (RIGHT / 2); ++i) sums[i / (RIGHT / 2)][i % (RIGHT / 2)] = 0.0f;
    f32 factor[PARTS];
    if constexpr (Shared::scaled) {
#pragma unroll
      for (int i = 0; i < PARTS; ++i) factor[i] = load_one(factors[i] + begin);
    }
    // Adds `part`, the products of a piece with the stage at `at`, which have ended. `held` has the scales of this thread's
    // rows, if they were read before.
    const auto add = [&](f32(&part)[RIGHT / 2], int step, int piece = 0, const f32* held = nullptr) {
      f32(&to)[RIGHT / 2] = sums[piece];
      const bool last = piece == PIECES - 1;
      f32 next[PARTS];
      if constexpr (Shared::scaled) {
#pragma unroll
        for (int i = 0; last && i < PARTS; ++i) next[i] = load_one(factors[i] + smaller(step + 1, end - 1));
      }
      [[maybe_unused]] const f32* token_scale = shared.scales[at.stage];
      wgmma_results(part);
      if constexpr (Shared::scaled && !Shape::swap) {
        const int row = (group * HALVES + piece / ACROSS) * 64 + wgmma_row();
        const int along = piece % ACROSS * (RIGHT / 2);
        const f32 up = held ? held[0] : token_scale[row], down = held ? held[1] : token_scale[row + 8];
        if (last) {
          __syncwarp();  // all lanes have read their scales
          release(at.stage);
        }
#pragma unroll
        for (int i = 0; i < RIGHT / 2; ++i)
          to[i] += part[i] * ((i % 4 < 2 ? up : down) * factor[(along + i) / (ACROSS * RIGHT / 2 / PARTS)]);
      } else if constexpr (Shared::scaled) {
#pragma unroll
        for (int i = 0; i < RIGHT / 2; i += 4) {
          const float2 s = *reinterpret_cast<const float2*>(token_scale + i * 2 + lane % 4 * 2);
          const f32 left = s.x * factor[0], right = s.y * factor[0];
          to[i] += part[i] * left, to[i + 1] += part[i + 1] * right;
          to[i + 2] += part[i + 2] * left, to[i + 3] += part[i + 3] * right;
        }
        __syncwarp();
        release(at.stage);
      } else {
        if (last) release(at.stage);
#pragma unroll
        for (int i = 0; i < RIGHT / 2; ++i) to[i] += part[i];
      }
      if (!last) return;
      if constexpr (Shared::scaled) {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) factor[i] = next[i];
      }
      shared.ring.next(at);
    };
    f32 even[RIGHT / 2];
    if constexpr (PIECES == 1 && Shape::warpgroups <= 2 && RIGHT <= (Shape::blocks == 1 ? 128 : 32)) {
      // There are registers for the products of two steps. So one is made while the one before is added.
      f32 odd[RIGHT / 2];
      RingPlace ahead = at;
      const auto start = [&](f32(&part)[RIGHT / 2]) {
        begin_products(part, ahead, false);
        shared.ring.next(ahead);
      };
      start(even);
      int step = begin;
#pragma unroll 1
      for (; step + 2 < end; step += 2) {
        start(odd);
        wgmma_wait<1>();
        add(even, step);
        start(even);
        wgmma_wait<1>();
        add(odd, step + 1);
      }
      if (step + 1 < end) {
        start(odd);
        wgmma_wait<1>();
        add(even, step);
        wgmma_wait<0>();
        add(odd, step + 1);
      } else {
        wgmma_wait<0>();
        add(even, step);
      }
    } else {
      // The fence of copied stages waits for memory. So a warp waits for the next stage while the products of this one run.
      constexpr bool AHEAD = Shared::copied && !Shape::swap;
      // Scales of tokens that are read before the products begin are there when these have ended.
      constexpr bool HOLD = Shared::scaled && !Shape::swap && ACROSS > 1;
      if constexpr (AHEAD) wait_for(at);
#pragma unroll 1
      for (int step = begin; step < end; ++step) {
        f32 held[HALVES][2];
        if constexpr (HOLD) {
          if constexpr (!AHEAD) wait_for(at);
#pragma unroll
          for (int half = 0; half < HALVES; ++half) {
            const f32* const from = shared.scales[at.stage] + (group * HALVES + half) * 64 + wgmma_row();
            held[half][0] = from[0], held[half][1] = from[8];
          }
        }
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
          begin_products(even, at, false, piece, AHEAD || HOLD);
          if (AHEAD && piece == PIECES - 1 && step + 1 < end) {
            RingPlace next = at;
            shared.ring.next(next);
            wait_for(next);
          }
          wgmma_wait<0>();
          add(even, step, piece, HOLD ? held[piece / ACROSS] : nullptr);
        }
      }
    }
  }
}

}  // namespace kiln
