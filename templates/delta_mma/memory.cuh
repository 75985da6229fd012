// Shared memory of delta_chunk_mma: chunks of 16 tokens, and what the warps that prepare them need.
#pragma once
#include "dplr/memory.cuh"

namespace kiln {

// Factors of the chunk's tokens. Decays are 1 here with a gate of each key, because then they differ between keys.
struct alignas(16) DeltaMmaFactors {
  f32 key[DPLR_TOKENS];    // of k^T S: decay from the chunk's first token on, and norm of k
  f32 query[DPLR_TOKENS];  // of q^T S: the same decay, norm of q, and scale
  f32 write
      [DPLR_TOKENS];  // of k u^T in the next state: decay from the token to the chunk's end, and norm of k
};

// A chunk. q and k are as in global memory, and the decays are factors.
template <typename T, int K, bool KEYS, int COLUMNS>
struct alignas(128) DeltaMmaStage {
  static constexpr int SQUARE = DPLR_TOKENS * DPLR_TOKENS;
  T q[DPLR_TOKENS * K], k[DPLR_TOKENS * K];  // DplrRows<K>
  T v[DPLR_TOKENS * COLUMNS];                // DplrRows<COLUMNS>
  T inverse[SQUARE], attention[SQUARE];      // dplr_square(); see DeltaMmaPreparation
  DeltaMmaFactors factors;
  f32 kept;  // of S in the next state

  __device__ __forceinline__ const T* writes() const { return k; }
  __device__ __forceinline__ float2 kept_of(int) const { return make_float2(kept, kept); }
};

// A chunk with a gate of each key. The preparation multiplies q and k by decays in place.
template <typename T, int K, int COLUMNS>
struct alignas(128) DeltaMmaStage<T, K, true, COLUMNS> {
  static constexpr int SQUARE = DPLR_TOKENS * DPLR_TOKENS;
  T q[DPLR_TOKENS * K], k[DPLR_TOKENS * K];  // decay from the chunk's first token on, times the input
  T w[DPLR_TOKENS *
      K];  // decay from the token to the chunk's end, times k; before, gates of 2 bytes as rows of K
  T v[DPLR_TOKENS * COLUMNS];
  T inverse[SQUARE], attention[SQUARE];
  DeltaMmaFactors factors;
  f32 kept[K];  // of the rows of S in the next state

  __device__ __forceinline__ const T* writes() const { return w; }
  // Returns the factors of rows `row` and row + 1.
  __device__ __forceinline__ float2 kept_of(int row) const {
    return *reinterpret_cast<const float2*>(kept + row);
  }
};

// Memory of a warp that prepares chunks. For the inverse it has 16 rows of DPLR_INVERSE_PITCH floats.
template <int K, bool KEYS>
struct alignas(16) DeltaMmaScratch {
  f32 inverse[DPLR_TOKENS * 20];
};
template <int K>
struct alignas(16) DeltaMmaScratch<K, true> {
  static constexpr int PITCH = K + 4;  // reads of eight rows are free of bank conflicts
  // Row i + 1 has the sums of the base-2 logarithms of the decays of tokens 0 to i. Row 0 is 0. Before, row i + 1 has the
  // gates of token i, if they are f32. Later, the memory of the inverse begins at row 1.
  f32 gate[(DPLR_TOKENS + 1) * PITCH];
};

// Chunk i of a block has stage i % STAGES. Each preparing warp works on one, and the others wait for the state.
template <typename T, int K, bool KEYS, int COLUMNS, int PREPARERS>
struct DeltaMmaShared {
  static constexpr int STAGES = PREPARERS + 2;
  DeltaMmaStage<T, K, KEYS, COLUMNS> stages[STAGES];
  DeltaMmaScratch<K, KEYS> scratch[PREPARERS];
  ChunkOrder order;
  Barrier ready[STAGES], empty[STAGES];
};

}  // namespace kiln
