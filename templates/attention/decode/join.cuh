// Joins the results of a block's warps for an item, and merges the parts of a token.
#pragma once
#include "attention/decode/rows.cuh"
#include "attention/state.cuh"
#include "attention/work_list.cuh"
#include "kiln/mbarrier.cuh"
#include "kiln/shared.cuh"

namespace kiln {

// Joins the warps' results of an item in shared memory. While one warp joins, the other warps go on to the
// next items. The nth item takes the place of item nth - BUFFERS.
template <int DV, int GROUP, int WARPS, int BUFFERS>
struct DecodeJoin {
  static_assert(BUFFERS == 1 || BUFFERS == 2, "BUFFERS is 1 or 2: a joining warp is at most one item late");
  static constexpr int COLUMNS = static_cast<int>(ceil_div(GROUP, 8)) * 8,
                       STRIDE = DV + 4;  // the 4 keeps columns 2t and 2t + 2 apart by 8 banks
  struct Place {
    // Each item is a phase of both barriers:
    // - `all` ends when all warps have put their results.
    // - `joined` ends when one warp has joined the results.
    Barrier all, joined;
    alignas(16) f32 shift[COLUMNS][WARPS], sum[COLUMNS][WARPS];  // shift: base 2
    alignas(16) f32 output[WARPS][GROUP][STRIDE];
  };
  Place places[BUFFERS];

  // Initialises the barriers. One thread calls it, and a barrier of the block must follow.
  // All lanes arrive, each for its own writes. One arrival of a warp after __syncwarp() would be enough, but
  // racecheck cannot see this.
  __device__ __forceinline__ void init() {
    for (Place& place : places) place.all.init(32 * WARPS), place.joined.init(32);
  }

  // Waits until all warps have put their results of the nth item.
  __device__ __forceinline__ void wait(i32 nth) { places[nth % BUFFERS].all.wait(nth / BUFFERS & 1); }
  // Frees the nth item's place. All lanes of the warp that has joined the item call it.
  __device__ __forceinline__ void release(i32 nth) { places[nth % BUFFERS].joined.arrive(); }

  // Puts a warp's results of the block's nth item, once the item's place is free. All lanes of the warp
  // call it.
  template <typename Rows, typename Tile>
  __device__ __forceinline__ void put(Rows& rows, Tile, i32 nth, int warp, int lane) {
    Place& to = places[nth % BUFFERS];
    if (nth >= BUFFERS) to.joined.wait(nth / BUFFERS - 1 & 1);
#pragma unroll
    for (int n = 0; n < Rows::N; ++n) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const f32 own = warp_sum_of_rows(rows.softmax[n][p].sum);
        const int column = 8 * n + 2 * lane + p;
        if (lane < 4) to.shift[column][warp] = rows.softmax[n][p].shift, to.sum[column][warp] = own;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * n + lane % 4 * 2 + i % 2;
        if (column >= GROUP) continue;
#pragma unroll
        for (int m = 0; m < DV / 16; ++m)
          to.output[warp][column][Tile::value_element(m, lane / 4 + i / 2 * 8)] = rows.output[m][n][i];
      }
    }
    to.all.arrive();
  }

  // The joined results of all warps for an item. They can be read after wait() or a barrier of the block,
  // until release().
  struct Joined {
    const Place& from;

    struct Column {
      const Place& from;
      const int column;
      f32 shift, sum = 0.0f;  // shift: base 2
      f32 weight[WARPS];      // factors of the warps' outputs, before the division by the sum

      __device__ __forceinline__ Column(const Place& from, int column) : from(from), column(column) {
        f32 shifts[WARPS], sums[WARPS];
        widen(load_shared<WARPS>(from.shift[column]), shifts);
        widen(load_shared<WARPS>(from.sum[column]), sums);
        shift = shifts[0];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) shift = fmaxf(shift, shifts[w]);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
          weight[w] = exp2_approx(shifts[w] - finite_shift(shift));
          sum = fmaf(sums[w], weight[w], sum);
        }
      }

      __device__ __forceinline__ f32 lse() const { return finite_shift(shift) + log2_approx(sum); }
      // Returns four elements of the output from `element` on, divided by the sum and times `v_scale`.
      __device__ __forceinline__ void mean(int element, f32 v_scale, f32 (&v)[4]) const {
        const f32 factor = sum > 0.0f ? v_scale * reciprocal_approx(sum) : 0.0f;
        v[0] = v[1] = v[2] = v[3] = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
          const f32 share = weight[w] * factor;
          f32 own[4];
          widen(load_shared<4>(&from.output[w][column][element]), own);
#pragma unroll
          for (int i = 0; i < 4; ++i) v[i] = fmaf(own[i], share, v[i]);  // a warp without tokens has zeros
        }
      }
    };
    __device__ __forceinline__ Column column(int column) const { return {from, column}; }
  };
  __device__ __forceinline__ Joined of(i32 nth) const { return {places[nth % BUFFERS]}; }

 private:
  __device__ static __forceinline__ f32 warp_sum_of_rows(f32 v) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) v += shuffle_xor(v, lanes);
    return v;
  }
};

// The parts of tokens in the workspace. A row of a slot is a mean, then its shift and its sum. Shift and sum
// are kept apart: next to a shift of -2e5 the logarithm of a sum has no digits left.
template <int DV, int GROUP>
struct DecodeParts {
  static constexpr int ROW = DV + 4;
  AttentionSlots<GROUP, ROW> slots;

  __device__ __forceinline__ f32* row(i32 slot, int row) const { return slots.rows(slot) + row * ROW; }

  __device__ __forceinline__ void save_sum(i32 slot, int column, f32 shift, f32 sum) const {
    const f32 both[2] = {shift, sum};
    store(row(slot, column) + DV, narrow<f32>(both));
  }

  // Merges all parts of the item's tile in their order. `members` threads take part, and this thread is
  // number `member`. merge() calls write(row, column, four elements) and write_lse(row, lse). The item's own
  // part comes from the join. It has the same bits as in its slot, from which another block would merge it.
  // REQUIRES: the other parts' slots are visible, as they are after AttentionPlan::arrive().
  template <typename Joined, typename Write, typename WriteLse>
  __device__ __forceinline__ void merge(const AttentionItem& item, const Joined& joined, f32 v_scale,
                                        int member, int members, const Write& write,
                                        const WriteLse& write_lse) const {
    constexpr int BATCH = 8;  // parts whose loads are under way at once
#pragma unroll 1
    for (int j = member; j < GROUP * DV / 4; j += members) {
      const int own = j / (DV / 4), column = j % (DV / 4) * 4;
      AttentionState<4> state;
      const auto own_column = joined.column(own);
      f32 own_mean[4];
      own_column.mean(column, v_scale, own_mean);
#pragma unroll 1
      for (i32 first = 0; first < item.parts; first += BATCH) {
        Vec<f32, 4> mean[BATCH];
        f32 shift[BATCH], sum[BATCH];
#pragma unroll
        for (int n = 0; n < BATCH; ++n) {
          shift[n] = -infinity(), sum[n] = 0.0f;
          if (first + n >= item.parts) continue;
          if (first + n == item.part) {
            shift[n] = own_column.shift, sum[n] = own_column.sum, mean[n] = narrow<f32>(own_mean);
            continue;
          }
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
