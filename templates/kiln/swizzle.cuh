// A layout of rows in shared memory that has no bank conflicts.
//
// It suits ldmatrix, and accesses of 16 bytes along rows or along columns.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// Returns the elements of 2 bytes that a row of `d` elements takes in a tile, where rows are whole 128 bytes.
__host__ __device__ constexpr int padded_row(int d) { return (d + 63) / 64 * 64; }

// A tile of rows of BYTES bytes, a multiple of 128. The 16-byte chunks of a row lie in an order that depends
// on the three lowest bits of the row's number. The same chunk of eight neighbouring rows is therefore in
// eight different groups of banks.
template <int BYTES>
struct Swizzled {
  static_assert(BYTES % 128 == 0, "BYTES must be a multiple of 128");
  static constexpr int PITCH = BYTES, CHUNKS = BYTES / 16;

  // Returns the bytes from the start of the tile to a chunk of a row. The tile is aligned to 1024 bytes.
  __device__ static constexpr u32 offset(int row, int chunk) {
    return row * BYTES + ((chunk ^ (row & 7)) * 16);
  }

  // Returns the offset of the chunk that lies `chunks` chunks after the chunk at `offset` in the same row.
  // `offset` may be an address in shared memory instead; the result is then an address. REQUIRES: `chunks` is
  // a constant, and has no bit in common with the number of the chunk at `offset`. An XOR therefore changes
  // the three low bits of that number, and an addition changes the other bits.
  __device__ static constexpr u32 further(u32 offset, int chunks) {
    return (offset ^ ((chunks & 7) * 16)) + (chunks & ~7) * 16;
  }
};

}  // namespace kiln
