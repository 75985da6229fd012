// The queries of an item, as the right operand of a warp's products.
#pragma once
#include "kiln/kv_tile.cuh"
#include "kiln/reduce.cuh"
#include "kiln/shared.cuh"

namespace kiln {

// The queries of an item in shared memory, a row for each column; columns from GROUP on are zeros. For fp8
// keys a row is in KvTile's order, and a bf16 one is divided by a power of two, its factor, so that f16 holds
// it.
template <typename T, typename KV, int D, int GROUP, int WARPS>
struct DecodeQueries {
  using C = typename ProductType<T, KV>::Type;
  using Tile = Swizzled<2 * D>;
  static constexpr int COLUMNS = static_cast<int>(ceil_div(GROUP, 8)) * 8;
  static constexpr bool SCALED = !same<T, C>;
  alignas(128) u8 rows[COLUMNS * 2 * D];
  f32 factor[COLUMNS];

  // By all warps; others see it behind a barrier.
  __device__ __forceinline__ void load_from(const T* q, i64 stride_head, int warp, int lane) {
    constexpr int EACH = static_cast<int>(ceil_div(COLUMNS, WARPS));
    Vec<T, 8> x[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int row = warp + i * WARPS;
      if (row < GROUP && lane < D / 8) x[i] = load<8>(q + row * stride_head + lane * 8);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int row = warp + i * WARPS;
      if (row >= COLUMNS) break;
      uint4 bits{x[i].word[0], x[i].word[1], x[i].word[2], x[i].word[3]};
      if constexpr (SCALED) {
        f32 v[8], largest = 0.0f;
        widen(x[i], v);
        for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf(v[j]));
        const u32 exponent = min(max(__float_as_uint(warp_reduce<32>(largest, Max{})) >> 23, 27u), 227u);
        const f32 inverse = __uint_as_float((254 - exponent) << 23);
        if (lane == 0) factor[row] = __uint_as_float(exponent << 23);
        bits = {pack<C>(v[0] * inverse, v[1] * inverse), pack<C>(v[2] * inverse, v[3] * inverse), pack<C>(v[4] * inverse, v[5] * inverse),
                pack<C>(v[6] * inverse, v[7] * inverse)};
      }
      if (lane >= D / 8) continue;
      if constexpr (KvTile<KV, D>::BYTE) {  // of four neighbours, a lane's elements of k, the first two are
                                            // in the first chunk of 16 and the others in the second
        const int chunk = lane / 2 * 2, half = lane % 2 * 8;
        *reinterpret_cast<uint2*>(rows + Tile::offset(row, chunk) + half) = {bits.x, bits.z};
        *reinterpret_cast<uint2*>(rows + Tile::offset(row, chunk + 1) + half) = {bits.y, bits.w};
      } else {
        *reinterpret_cast<uint4*>(rows + Tile::offset(row, lane)) = bits;
      }
    }
  }

  // A lane's place in 8 rows, for operands() at element 0.
  __device__ __forceinline__ u32 place(int lane) const { return shared_address(rows) + Tile::offset(lane % 8, lane / 8); }
  // Elements [32 n, 32 n + 32) of 8 columns as two operands [element][column].
  __device__ static __forceinline__ void operands(u32 (&b)[4], u32 place, int columns, int n) {
    load_matrices(b, Tile::further(place + columns * 8 * 2 * D, 4 * n));
  }
};

}  // namespace kiln
