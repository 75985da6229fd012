// Shared memory of dplr_chunk: chunks of 16 tokens, and what the warps that prepare them need. Orders of rows and of small
// matrices there, which delta_chunk_mma has, too.
#pragma once
#include "kiln/mbarrier.cuh"
#include "kiln/types.cuh"
#include "recurrent/chunk/order.cuh"

namespace kiln {

inline constexpr int DPLR_TOKENS = 16;   // tokens of a chunk
inline constexpr int DPLR_COLUMNS = 64;  // columns of the state in a block

// Rows of K elements of 2 bytes, one for each token. Their 16-byte chunks lie in an order that depends on the row. Neither
// the same chunk of eight rows has bank conflicts, nor four chunks of each of two rows.
template <int K>
struct DplrRows {
  // Returns the bytes from the first row to a chunk of a row.
  __device__ static __forceinline__ constexpr u32 offset(int row, int chunk) {
    return row * (K * 2) + ((chunk ^ (row % 2 * 4 + row / 2 % 4)) * 16);
  }
};

// A matrix of 16 x 16 elements of 2 bytes. Returns the bytes from its start to half a row. The halves of a row change
// places in every other four rows, which keeps bank conflicts away.
__device__ __forceinline__ constexpr u32 dplr_square(int row, int half) {
  return row * 32 + (half ^ row / 4 % 2) * 16;
}

// A chunk. Before its preparation r, k, a and b are the inputs; the preparation multiplies them by decays in place. Its
// matrices take the place of w.
template <typename T, typename W, int K>
struct alignas(128) DplrStage {
  static constexpr int SQUARE = DPLR_TOKENS * DPLR_TOKENS;
  T r[DPLR_TOKENS * K], k[DPLR_TOKENS * K], a[DPLR_TOKENS * K], b[DPLR_TOKENS * K];  // DplrRows<K>
  T v[DPLR_TOKENS * DPLR_COLUMNS];                                                   // DplrRows<64>
  union {
    W w[DPLR_TOKENS * K];
    struct {
      T inverse[SQUARE], a_k[SQUARE], r_b[SQUARE], r_k[SQUARE];  // see DplrPreparation
    };
  };
  f32 kept[K];  // the decay of each row of the state over the chunk
};

// Memory of a warp that prepares chunks.
template <int K>
struct DplrScratch {
  static constexpr int PITCH = K + 4;  // reads of eight rows are free of bank conflicts
  // Row i + 1 has the sums of the base-2 logarithms of the decays of tokens 0 to i. Row 0 is 0.
  alignas(16) f32 gate[(DPLR_TOKENS + 1) * PITCH];
};

// Chunk i of a block has stage i % STAGES. Each preparing warp works on one, and the others wait for the state.
template <typename T, typename W, int K, int PREPARERS>
struct DplrShared {
  static constexpr int STAGES = PREPARERS + 2;
  DplrStage<T, W, K> stages[STAGES];
  DplrScratch<K> scratch[PREPARERS];
  ChunkOrder order;
  Barrier ready[STAGES], empty[STAGES];
};

}  // namespace kiln
