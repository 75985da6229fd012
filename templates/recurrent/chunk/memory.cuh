// Shared memory of delta_chunk. A block that walks has a ring of chunks of 64 tokens. A block that prepares has some memory for
// each of its warpgroups.
#pragma once
#include "kiln/hopper/pipeline.cuh"
#include "recurrent/chunk/inverse.cuh"

namespace kiln {

inline constexpr int CHUNK = 64;  // tokens of a chunk

// A panel of 64 rows and 64 elements of 2 bytes, with a swizzle of 128 as TMA writes it. Its address is a multiple of 1024.
template <typename T>
using ChunkPanel = T[CHUNK * 64];

// Factors of the chunk's tokens. `decay` is the product of the decays from the chunk's first token on. Two neighbouring
// factors are read at once, so that each stage's factors are aligned.
struct alignas(16) ChunkFactors {
  f32 key[CHUNK];    // of k^T S: decay and norm of k
  f32 query[CHUNK];  // of q^T S: decay, norm of q, and scale
  f32 write[CHUNK];  // of k u^T in the next state: decay from the token to the chunk's end, and norm of k
  f32 kept;          // of S in the next state
};

// The results of a preparation, as they are copied from block to block.
template <typename T>
struct PreparedChunk {
  static constexpr u32 BYTES = 2 * CHUNK * 64 * sizeof(T) + sizeof(ChunkFactors);
  ChunkPanel<T> inverse;    // (I + A)^-1 beta, see DeltaPreparation
  ChunkPanel<T> attention;  // the weight of each u in each output of the chunk
  ChunkFactors factors;
};

// A PreparedChunk for a gate of each key channel.
template <typename T, int K>
struct KeyPreparedChunk {
  static constexpr u32 BYTES = (3 * K + 128) * CHUNK * sizeof(T) + K * sizeof(f32);
  ChunkPanel<T> q[K / 64];  // decay from the chunk's first token on, norm of q, and scale, times q
  ChunkPanel<T> k[K / 64];  // decay and norm of k, times k
  ChunkPanel<T> w[K / 64];  // decay from the token to the chunk's end, and norm of k, times k
  ChunkPanel<T> inverse, attention;
  f32 kept[K];  // of the rows of S in the next state
};

template <typename T, int K, int WALKS>
struct alignas(1024) ChunkTiles {
  ChunkPanel<T> v[WALKS], q[K / 64], k[K / 64];  // a row is a token
  PreparedChunk<T> prepared;
};
template <typename T, int K, int WALKS>
struct alignas(1024) KeyChunkTiles {
  ChunkPanel<T> v[WALKS];
  KeyPreparedChunk<T, K> prepared;
};

// Memory of a block that walks.
template <typename T, typename Tiles, int WALKS, int STAGES>
struct WalkMemory {
  Tiles tiles[STAGES];
  alignas(16) T out[WALKS * 4][CHUNK * 16];  // outputs of each walking warp on their way to global memory
  Ring<STAGES> ring;  // full: TMA has brought q, k and v, and the prepared chunk is there
};

// Memory of a warpgroup that prepares chunks.
template <typename T, int K>
struct alignas(1024) PreparationMemory {
  ChunkPanel<T> q[K / 64], k[K / 64];
  union {
    alignas(1024) ChunkMatrix matrix;
    PreparedChunk<T> prepared;  // once the inverse is in registers
  };
  alignas(16) f32 gate[CHUNK];  // sum of the base-2 logarithms of the decays up to a token
  f32 beta[CHUNK], k_norm[CHUNK], q_norm[CHUNK];
};

// Memory of a warpgroup that prepares chunks with a gate of each key channel. It makes the prepared chunk where q and k were.
template <typename T, int K>
struct alignas(1024) KeyPreparationMemory {
  KeyPreparedChunk<T, K> prepared;
  // Sums of the base-2 logarithms of each channel's decays, from the first token of a block of 16 tokens on. More elements of a row
  // keep bank conflicts away.
  alignas(16) f32 gate[CHUNK][K + 8];
  // Decays of each channel over a block, their inverses, and the decays of all blocks after it.
  f32 whole[4][K], grown[4][K], after[4][K];
  f32 kept[K];  // of the next KeyPreparedChunk
  f32 beta[CHUNK], k_norm[CHUNK], q_norm[CHUNK];

  // The matrix lies where the gates were.
  __device__ __forceinline__ ChunkMatrix& matrix() { return *reinterpret_cast<ChunkMatrix*>(&gate); }
};

// The types for KEYS: a gate of each key channel.
template <typename T, int K, int WALKS, bool KEYS>
struct ChunkTypes {
  using Tiles = ChunkTiles<T, K, WALKS>;
  using Prepared = PreparedChunk<T>;
  using Memory = PreparationMemory<T, K>;
  static constexpr int GROUPS = 4;  // of a block that prepares
};
template <typename T, int K, int WALKS>
struct ChunkTypes<T, K, WALKS, true> {
  using Tiles = KeyChunkTiles<T, K, WALKS>;
  using Prepared = KeyPreparedChunk<T, K>;
  using Memory = KeyPreparationMemory<T, K>;
  static constexpr int GROUPS = 2;
};

// Memory of a block that prepares. A Place is the chunk that a warpgroup takes next.
template <typename Memory, typename Place, int WARPGROUPS>
struct PreparationsMemory {
  static constexpr int GROUPS = WARPGROUPS;
  Memory group[GROUPS];
  Place place[GROUPS];
  Barrier loaded[GROUPS];  // TMA has brought q and k
  Barrier room[GROUPS];    // the stages that the prepared chunk goes to are empty
  Barrier taken[GROUPS];   // the prepared chunk has been copied
};

}  // namespace kiln
