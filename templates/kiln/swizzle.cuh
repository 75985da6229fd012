// Rows of shared memory without bank conflicts: what ldmatrix and 16-byte accesses along rows or columns want.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// Rows of BYTES bytes, a multiple of 128. The 16-byte chunks of a row lie in an order that depends on the row's three lowest bits, so that the same
// chunk of eight neighbouring rows is in eight different bank groups.
template <int BYTES>
struct Swizzled {
  static_assert(BYTES % 128 == 0, "rows of whole 128 bytes");
  static constexpr int PITCH = BYTES, CHUNKS = BYTES / 16;

  // Bytes from the begin of the tile, which is aligned to 1024 bytes.
  __device__ static constexpr u32 offset(int row, int chunk) {
    return row * BYTES + ((chunk ^ (row & 7)) * 16);
  }

  // The place of a chunk that is `chunks` (a constant, a power of two's multiple that the lane's own chunk has no bits of) further in the row: an XOR
  // of the low three bits of the chunk's number, an addition of the others.
  __device__ static constexpr u32 further(u32 offset, int chunks) {
    return (offset ^ ((chunks & 7) * 16)) + (chunks & ~7) * 16;
  }
};

}  // namespace kiln
