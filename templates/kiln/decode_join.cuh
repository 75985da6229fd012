// What the warps of a block have seen of an item, joined; and what the blocks have seen of a token, merged.
#pragma once
#include "kiln/attention_plan.cuh"
#include "kiln/attention_state.cuh"
#include "kiln/decode_rows.cuh"
#include "kiln/shared.cuh"

namespace kiln {

// What the warps of a block have seen of an item, joined in shared memory: outputs are divided by the sums,
// lse is base 2.
template <int DV, int GROUP, int WARPS>
struct DecodeJoin {
  static constexpr int COLUMNS = static_cast<int>(ceil_div(GROUP, 8)) * 8,
                       STRIDE = DV + 4;            // the 4: columns 8 banks apart
  static constexpr int SUMS = GROUP <= 4 ? 2 : 1;  // more cost a block of the SM
  f32 shift[WARPS][COLUMNS], sum[WARPS][COLUMNS];  // shift: base 2
  alignas(16) f32 output[SUMS][GROUP][STRIDE];     // of every SUMS-th warp

  __device__ __forceinline__ f32 largest(int column) const {
    f32 out = shift[0][column];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) out = fmaxf(out, shift[w][column]);
    return out;
  }
  __device__ __forceinline__ f32 total(int column, f32 largest) const {
    f32 out = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) out += sum[w][column] * exp2_approx(shift[w][column] - finite_shift(largest));
    return out;
  }
  __device__ __forceinline__ f32 lse(int column) const {
    const f32 l = largest(column);
    return finite_shift(l) + log2_approx(total(column, l));
  }

  // Eight elements of the joined output.
  __device__ __forceinline__ void mean(int column, int element, f32 (&v)[8]) const {
    widen(load_shared<8>(&output[0][column][element]), v);
    if constexpr (SUMS == 2) {
      f32 other[8];
      widen(load_shared<8>(&output[1][column][element]), other);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] += other[i];
    }
  }

  // By all warps: barriers in front of the result and behind it are within. The warps of a sum add one after
  // the other, so that it has one order.
  template <typename Rows, typename Tile>
  __device__ __forceinline__ void join(Rows& rows, Tile, f32 v_scale, int warp, int lane) {
#pragma unroll
    for (int n = 0; n < Rows::N; ++n) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const f32 own = warp_sum_of_rows(rows.softmax[n][p].sum);
        const int column = 8 * n + 2 * lane + p;
        if (lane < 4) shift[warp][column] = rows.softmax[n][p].shift, sum[warp][column] = own;
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < Rows::N; ++n) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const int column = 8 * n + lane % 4 * 2 + p;
        const f32 l = largest(column), all = total(column, l);
        rows.rescale(n, p, all > 0.0f ? exp2_approx(shift[warp][column] - finite_shift(l)) * v_scale * reciprocal_approx(all) : 0.0f);
      }
    }
#pragma unroll 1
    for (int w = 0; w < WARPS; w += SUMS) {
      if (w == warp / SUMS * SUMS) {
#pragma unroll
        for (int n = 0; n < Rows::N; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int column = 8 * n + lane % 4 * 2 + i % 2;
            if (column >= GROUP) continue;
#pragma unroll
            for (int m = 0; m < DV / 16; ++m) {
              f32& to = output[warp % SUMS][column][Tile::value_element(m, lane / 4 + i / 2 * 8)];
              to = (w == 0 ? 0.0f : to) + rows.output[m][n][i];
            }
          }
        }
      }
      __syncthreads();
    }
  }

 private:
  __device__ static __forceinline__ f32 warp_sum_of_rows(f32 v) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) v += shuffle_xor(v, lanes);
    return v;
  }
};

// Parts of tokens in the workspace. A row of a slot is a mean, then shift and sum apart: next to a shift of -2e5 the logarithm of a sum has no digits left.
template <int DV, int GROUP, int THREADS>
struct DecodeParts {
  static constexpr int ROW = DV + 4;
  AttentionSlots<GROUP, ROW> slots;

  __device__ __forceinline__ f32* row(i32 slot, int row) const { return slots.rows(slot) + row * ROW; }

  __device__ __forceinline__ void save_sum(i32 slot, int column, f32 shift, f32 sum) const {
    const f32 both[2] = {shift, sum};
    store(row(slot, column) + DV, narrow<f32>(both));
  }

  // All parts of the item's tile, in their order, by all threads: write(row, column, four elements) and write_lse(row, lse).
  template <typename Write, typename WriteLse>
  __device__ __forceinline__ void merge(const AttentionItem& item, const Write& write, const WriteLse& write_lse) const {
    constexpr int BATCH = 8;  // parts under way at once
#pragma unroll 1
    for (int j = threadIdx.x; j < GROUP * DV / 4; j += THREADS) {
      const int own = j / (DV / 4), column = j % (DV / 4) * 4;
      AttentionState<4> state;
#pragma unroll 1
      for (i32 first = 0; first < item.parts; first += BATCH) {
        Vec<f32, 4> mean[BATCH];
        f32 shift[BATCH], sum[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH; ++n) {
          shift[n] = -infinity(), sum[n] = 0.0f;
          if (first + n >= item.parts) continue;
          const f32* const part = row(item.first_slot + first + n, own);
          f32 both[2];
          widen(load<2>(part + DV), both);
          shift[n] = both[0], sum[n] = both[1];
          mean[n] = load<4>(part + column);
        }
        state.take(shift, sum, mean);
      }
      f32 v[4];
      state.mean(v);
      write(own, column, v);
      if (column == 0) write_lse(own, state.lse());
    }
  }
};

}  // namespace kiln
