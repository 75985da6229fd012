// The rows that each expert has in a grouped product, and the way of their sums to d.
#pragma once
#include "gemm/epilogue.cuh"
#include "kiln/activation.cuh"
#include "kiln/dtype.cuh"
#include "moe/scan.cuh"

namespace kiln {

// routed: sorted_token_ids lists the rows, in blocks of one expert, as moe_align makes them. contiguous: blocks of
// neighbouring rows have one expert. masked: each expert has as much room for rows, and a number of rows in use.
enum class Layout { routed, contiguous, masked };

// The operand of the routing weight of a row: none, the result, or the product before bias and activation.
enum class Weight { none, result, product };

// Up to BLOCK rows that have one expert.
struct ExpertRows {
  i32 expert;  // -1: no expert of this GPU; the rows of d become zeros
  i32 first;   // routed: the first place in sorted_token_ids; otherwise the first row
  i32 count;   // places or rows; 0: nothing is to be done
};

// The blocks of rows, and their experts.
template <Layout LAYOUT, int BLOCK, int E>
struct Routing {
  // Arguments of the call: `used` is num_tokens_post_padded, and `rows` counts the rows of d, or with masked of each expert.
  const i32 *expert_ids, *sorted_token_ids, *used;
  i32 rows;

  // Returns the number of blocks. masked: empty ones included.
  __device__ __forceinline__ i32 blocks() const {
    const i32 of_rows = static_cast<i32>(ceil_div(rows, BLOCK));
    return LAYOUT == Layout::routed ? *used / BLOCK : LAYOUT == Layout::masked ? E * of_rows : of_rows;
  }
  // A number that is no expert of b counts as -1. REQUIRES: 0 <= block < blocks().
  __device__ __forceinline__ ExpertRows at(i32 block) const {
    if constexpr (LAYOUT == Layout::routed) {
      return {checked(expert_ids[block]), block * BLOCK, BLOCK};
    } else if constexpr (LAYOUT == Layout::contiguous) {
      const i32 first = block * BLOCK;
      return {checked(expert_ids[first]), first, smaller(BLOCK, rows - first)};
    } else {
      const i32 of_rows = static_cast<i32>(ceil_div(rows, BLOCK)), expert = block / of_rows;
      const i32 before = (block - expert * of_rows) * BLOCK;
      const i32 used_rows = smaller(expert_ids[expert], rows);
      return {expert, expert * rows + before, larger(0, smaller(BLOCK, used_rows - before))};
    }
  }
  // Returns the i-th row of d of a block, or -1 if it has fewer.
  __device__ __forceinline__ i32 row(const ExpertRows& of, int i) const {
    if (i >= of.count) return -1;
    if constexpr (LAYOUT != Layout::routed) return of.first + i;
    const i32 id = sorted_token_ids[of.first + i];
    return static_cast<u32>(id) < static_cast<u32>(rows) ? id : -1;
  }

 private:
  __device__ static __forceinline__ i32 checked(i32 expert) {
    return static_cast<u32>(expert) < static_cast<u32>(E) ? expert : -1;
  }
};

// Finishes the sums of a row: y = act(w x + bias) times up, times w. `N` is the number of columns of d; with a gate the
// expert's weight has the rows of the first half, then N others.
template <int N, bool GATED, Order ORDER, Activation ACT, bool BIAS, typename BIAS_T, Weight WEIGHT>
struct ExpertEpilogue {
  using Bias = BIAS_T;
  static constexpr bool gated = GATED, weighted = WEIGHT != Weight::none;
  static constexpr bool slow_to_compile = ACT == Activation::gelu;

  const BIAS_T* bias;  // of the first expert
  f32 alpha, limit;    // of swigluoai

  // Finishes W neighbouring sums of a row of d from column n on; `other` has the sums of the other half of the weight's
  // rows. `weight` is the routing weight of the row. REQUIRES: the columns exist; n is a multiple of W.
  template <int W>
  __device__ __forceinline__ void finish(f32 (&x)[W], f32 (&other)[W], i32 expert, f32 weight, int n) const {
    if constexpr (WEIGHT == Weight::product) scale(x, weight), scale(other, weight);
    if constexpr (BIAS) {
      const BIAS_T* from = bias + static_cast<i64>(expert) * (GATED ? 2 * N : N) + n;
      add(x, from);
      if constexpr (GATED) add(other, from + N);
    }
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const f32 gate = ORDER == Order::gate_first ? x[i] : other[i];
      const f32 up = ORDER == Order::gate_first ? other[i] : x[i];
      if constexpr (ACT == Activation::swigluoai) {
        x[i] = activate<Act::swigluoai>(gate, alpha, limit) * kiln::gated<Act::swigluoai>(up, limit);
      } else if constexpr (GATED) {
        x[i] = activated<ACT>(gate) * up;
      } else {
        x[i] = activated<ACT>(x[i]);
      }
    }
    if constexpr (WEIGHT == Weight::result) scale(x, weight);
  }
};

}  // namespace kiln
