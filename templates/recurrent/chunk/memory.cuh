// Shared memory of delta_chunk: a ring of chunks of 64 tokens, and their factors and barriers.
#pragma once
#include "kiln/hopper/pipeline.cuh"
#include "recurrent/chunk/inverse.cuh"

namespace kiln {

inline constexpr int CHUNK = 64;  // tokens of a chunk

// A panel of 64 rows and 64 elements of 2 bytes, with a swizzle of 128 as TMA writes it. Its address is a multiple of 1024.
template <typename T>
using ChunkPanel = T[CHUNK * 64];

template <typename T, int K>
struct ChunkTiles {
  ChunkPanel<T> q[K / 64], k[K / 64], v;  // a row is a token
  ChunkPanel<T> inverse;                  // (I + A)^-1 beta, see DeltaPreparation
  ChunkPanel<T> attention;                // the weight of each u in each output of the chunk
};

// Factors of the chunk's tokens. `decay` is the product of the decays from the chunk's first token on. Two neighbouring
// factors are read at once, so that each stage's factors are aligned.
struct alignas(16) ChunkFactors {
  f32 key[CHUNK];    // of k^T S: decay and norm of k
  f32 query[CHUNK];  // of q^T S: decay, norm of q, and scale
  f32 write[CHUNK];  // of k u^T in the next state: decay from the token to the chunk's end, and norm of k
  f32 kept;          // of S in the next state
};

// Values that the threads of a warpgroup that prepares chunks share.
struct PreparationMemory {
  alignas(16) ChunkMatrix matrix;
  alignas(16) f32 gate[CHUNK];  // sum of the base-2 logarithms of the decays up to a token
  alignas(16) f32 beta[CHUNK], k_norm[CHUNK], q_norm[CHUNK];
};

template <typename T, int K, int STAGES>
struct ChunkShared {
  ChunkTiles<T, K> tiles[STAGES];
  alignas(16) T out[4][CHUNK * 16];  // outputs of each walking warp on their way to global memory
  ChunkFactors factors[STAGES];
  PreparationMemory preparation[2];
  Ring<STAGES> ring;      // full: TMA has brought q, k and v
  Barrier ready[STAGES];  // the tiles and factors that a chunk's preparation makes are there
};

}  // namespace kiln
