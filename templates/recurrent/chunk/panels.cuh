// Rows of panels that belong to no token of the chunk.
#pragma once
#include "kiln/hopper/tma.cuh"
#include "recurrent/chunk/memory.cuh"

namespace kiln {

// Rows from `count` on of k become zeros, because products sum over them, and rows of other sequences may be NaN. All
// threads of a warpgroup call it, and each then calls fence_async_shared(). Two warpgroups may clear the same rows.
template <typename T, int PANELS>
__device__ __forceinline__ void clear_keys(ChunkPanel<T> (&k)[PANELS], int count) {
  for (int at = count * 8 + static_cast<int>(threadIdx.x) % 128; at < CHUNK * 8; at += 128) {
#pragma unroll
    for (int i = 0; i < PANELS; ++i) reinterpret_cast<uint4*>(k[i])[at] = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace kiln
