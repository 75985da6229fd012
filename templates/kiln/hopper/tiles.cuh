// The order of tiles in a persistent kernel, whose blocks take a tile after the other.
#pragma once
#include "kiln/types.cuh"

namespace kiln {

// Tiles of a matrix. Blocks that run together should read few different rows and columns, so that these stay in the L2.
// The order therefore goes down GROUP rows of tiles, then to the next column, and at the end to the next GROUP rows.
template <int GROUP>
struct Tiles {
  int rows, columns;

  __device__ __forceinline__ int count() const { return rows * columns; }
  __device__ __forceinline__ void place(int tile, int& row, int& column) const {
    const int group = tile / (GROUP * columns), within = tile - group * GROUP * columns;
    const int height = smaller(GROUP, rows - group * GROUP);
    column = within / height;
    row = group * GROUP + within - column * height;
  }
};

}  // namespace kiln
