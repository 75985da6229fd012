// Prepares the queries of an item as the right operand of a warp's products.
#pragma once
#include "attention/kv_tile.cuh"
#include "kiln/reduce.cuh"
#include "kiln/shared.cuh"

namespace kiln {

// The properties of a q head, which is a column of the products.
struct DecodeColumn {
  f32 factor;  // factor of the head's queries, where fp8 keys need one
  f32 slope;   // ALiBi's slope times the logits' unit
  i32 token;   // query token of the request, for ALiBi
};

// The queries of a warp's item, as rows of shared memory, one for each column. Columns from GROUP on are
// zeros. With fp8 keys a row has KvTile's order. A bf16 row is then also divided by a power of two, its
// factor, so that f16 can hold it.
template <typename T, typename KV, int D, int GROUP>
struct DecodeQueries {
  using C = typename ProductType<T, KV>::Type;
  using Tile = Swizzled<2 * D>;
  static constexpr int COLUMNS = static_cast<int>(ceil_div(GROUP, 8)) * 8;
  static constexpr bool SCALED = !same<T, C>;
  alignas(128) u8 rows[COLUMNS * 2 * D];
  DecodeColumn column[COLUMNS];

  // Makes the columns from GROUP on zeros. All lanes call it once.
  __device__ __forceinline__ void init(int lane) {
    for (int i = GROUP * (D / 8) + lane; i < COLUMNS * (D / 8); i += 32)
      *reinterpret_cast<uint4*>(rows + i * 16) = {};
    if (lane < COLUMNS) column[lane] = {};
  }

  // Takes the item's q heads, which follow each other at `q` in shared memory. All lanes call it, and see the
  // result after __syncwarp().
  __device__ __forceinline__ void take(const T* q, int lane) {
    constexpr int LANES = D / 8, AT_ONCE = 32 / LANES;
#pragma unroll
    for (int first = 0; first < GROUP; first += AT_ONCE) {
      const int row = first + lane / LANES, part = lane % LANES;
      const bool exists = lane < AT_ONCE * LANES && row < GROUP;
      Vec<T, 8> x;
      if (exists) x = load_shared<8>(q + row * D + part * 8);
      uint4 bits{x.word[0], x.word[1], x.word[2], x.word[3]};
      if constexpr (SCALED) {
        f32 v[8], largest = 0.0f;
        widen(x, v);
        for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf(v[j]));
        const u32 exponent =
            min(max(__float_as_uint(warp_reduce<32 / AT_ONCE>(largest, Max{})) >> 23, 27u), 227u);
        const f32 inverse = __uint_as_float((254 - exponent) << 23);
        if (exists && part == 0) column[row].factor = __uint_as_float(exponent << 23);
        bits = {pack<C>(v[0] * inverse, v[1] * inverse), pack<C>(v[2] * inverse, v[3] * inverse),
                pack<C>(v[4] * inverse, v[5] * inverse), pack<C>(v[6] * inverse, v[7] * inverse)};
      }
      if (!exists) continue;
      if constexpr (KvTile<KV, D>::BYTE) {
        // In the product, a lane has four neighbouring elements of k. The first two belong to the first chunk
        // of 16 bytes, the other two to the second chunk.
        const int chunk = part / 2 * 2, half = part % 2 * 8;
        *reinterpret_cast<uint2*>(rows + Tile::offset(row, chunk) + half) = {bits.x, bits.z};
        *reinterpret_cast<uint2*>(rows + Tile::offset(row, chunk + 1) + half) = {bits.y, bits.w};
      } else {
        *reinterpret_cast<uint4*>(rows + Tile::offset(row, part)) = bits;
      }
    }
  }

  // Takes the slopes of the item's q heads from global memory, times `unit`, and the heads' query token. All
  // lanes call it.
  __device__ __forceinline__ void take_slopes(const f32* slopes, f32 unit, i32 token, int lane) {
    if (lane < COLUMNS)
      column[lane].slope = lane < GROUP ? load_one(slopes + lane) * unit : 0.0f, column[lane].token = token;
  }

  // Returns a lane's shared address in 8 rows, for operands() at element 0.
  __device__ __forceinline__ u32 place(int lane) const {
    return shared_address(rows) + Tile::offset(lane % 8, lane / 8);
  }
  // Loads elements [32 n, 32 n + 32) of 8 columns as two operands [element][column]. `place` is the result of
  // place(), and `columns` is the number of the group of 8 columns.
  __device__ static __forceinline__ void operands(u32 (&b)[4], u32 place, int columns, int n) {
    load_matrices(b, Tile::further(place + columns * 8 * 2 * D, 4 * n));
  }
};

}  // namespace kiln
