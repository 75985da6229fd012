// The inputs of RWKV7's recurrence on their way to the threads of a block: STEPS tokens at a time are copied to shared memory as they are, two such
// chunks ahead, and made floats there once for all threads, with what depends on the token alone worked out.
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/math.cuh"
#include "kiln/sequences.cuh"

namespace kiln {

enum class Wkv7Form {
  a_b,   // a and b are inputs
  kk_a,  // kk and a are: the recurrence's a is -kk, its b is kk * a
};

// The global arrays, all of [tokens, heads, K or V].
template <typename T, typename W>
struct Wkv7Inputs {
  const T *r, *k, *a, *b;  // Wkv7Form::kk_a: kk for a, a for b
  const W* w;
  const T* v;
};

// TILE: a StateTile<K, V, ..>; COLUMNS: of a block at most.
template <typename T, typename W, int K, int V, Wkv7Form FORM, typename TILE, int COLUMNS, int STEPS>
class Wkv7Steps {
 public:
  static constexpr int AHEAD = 2;  // chunks whose copies are under way
  struct Step {  // of one token; kk_a: a and b with their signs turned, which leaves the state as it is
    f32 rkab[4][TILE::PADDED], w[TILE::PADDED], v[COLUMNS];
    __device__ __forceinline__ const f32* r() const { return rkab[0]; }
    __device__ __forceinline__ const f32* k() const { return rkab[1]; }
    __device__ __forceinline__ const f32* a() const { return rkab[2]; }
    __device__ __forceinline__ const f32* b() const { return rkab[3]; }
  };
  struct alignas(16) Storage {
    Step ready[2][STEPS];
    T rkab[AHEAD][4][STEPS * K], v[AHEAD][STEPS * COLUMNS];
    W w[AHEAD][STEPS * K];
  };

  // For `head` of the tokens of `span`, and the block's columns from first_column on. Rows that pad K are zero, also those of decay: they leave no trace.
  __device__ __forceinline__ Wkv7Steps(Storage& storage, const Wkv7Inputs<T, W>& in, Sequence span, i32 heads, i32 head, int first_column)
      : storage_(storage), in_(in), begin_(span.begin), count_(span.end - span.begin), heads_(heads), head_(head), first_column_(first_column) {
    if constexpr (TILE::PADDED > K) {
      f32* words = storage.ready[0][0].rkab[0];
      for (int i = thread(); i < static_cast<int>(sizeof(storage.ready) / sizeof(f32)); i += threads()) words[i] = 0.0f;
      __syncthreads();
    }
  }

  // Begins to copy a chunk; one group of copies, an empty one behind the last chunk.
  __device__ __forceinline__ void fetch(i64 chunk) {
    const int at = static_cast<int>(chunk % AHEAD);
    each(chunk, [&](i64 row, int, int i) {
      copy_async<PIECE>(storage_.rkab[at][0] + i, in_.r + row);
      copy_async<PIECE>(storage_.rkab[at][1] + i, in_.k + row);
      copy_async<PIECE>(storage_.rkab[at][2] + i, in_.a + row);
      copy_async<PIECE>(storage_.rkab[at][3] + i, in_.b + row);
      copy_async<PIECE>(storage_.w[at] + i, in_.w + row);
    }, [&](i64 row, int, int, int i) { copy_async<V_PIECE>(storage_.v[at] + i, in_.v + row); });
    copy_async_commit();
  }

  // The chunk that was fetched AHEAD - 1 fetches ago, as floats for all threads; ends with a barrier. Each thread converts what it copied itself,
  // so that none is needed before. The steps of the chunk before stay as they are.
  __device__ __forceinline__ const Step* get(i64 chunk) {
    copy_async_wait<AHEAD - 1>();
    const int at = static_cast<int>(chunk % AHEAD);
    Step* ready = storage_.ready[chunk % 2];
    each(chunk, [&](i64, int step, int i) {
      Step& to = ready[step];
      const int column = i % K;
      f32 x[PIECE];
#pragma unroll 1
      for (int j = 0; j < 4; ++j) {
        widen(load_shared<PIECE>(storage_.rkab[at][j] + i), x);
        if (FORM == Wkv7Form::kk_a && j == 3) {
          f32 kk[PIECE];
          widen(load_shared<PIECE>(to.a() + column), kk);
          for (int l = 0; l < PIECE; ++l) x[l] *= -kk[l];
        }
        store_shared(to.rkab[j] + column, x);
      }
      widen(load_shared<PIECE>(storage_.w[at] + i), x);
      for (int j = 0; j < PIECE; ++j) x[j] = exp2_approx(x[j] * LOG2_E);
      store_shared(to.w + column, x);
    }, [&](i64, int step, int column, int i) {
      f32 x[V_PIECE];
      widen(load_shared<V_PIECE>(storage_.v[at] + i), x);
      store_shared(ready[step].v + column, x);
    });
    __syncthreads();
    return ready;
  }

 private:
  static constexpr int PIECE = K % 8 == 0 ? 8 : 4, PIECES = K / PIECE;
  static constexpr int V_PIECE = V % 8 == 0 && TILE::COLUMNS % 8 == 0 ? 8 : 4, V_PIECES = TILE::COLUMNS / V_PIECE;

  __device__ static __forceinline__ int thread() { return threadIdx.y * 32 + threadIdx.x; }
  __device__ static __forceinline__ int threads() { return blockDim.y * 32; }

  // This thread's pieces of a chunk: over_k(element of the array, step, place), and of its warp's columns over_v(element, step, column, place).
  template <typename OverK, typename OverV>
  __device__ __forceinline__ void each(i64 chunk, OverK over_k, OverV over_v) {
    const i64 left = count_ - chunk * STEPS;
    const int steps = left < STEPS ? static_cast<int>(left) : STEPS;
    const i64 row = (begin_ + chunk * STEPS) * heads_ + head_;
#pragma unroll 1
    for (int i = thread(); i < steps * PIECES; i += threads()) {
      const int step = i / PIECES;
      over_k((row + static_cast<i64>(step) * heads_) * K + i % PIECES * PIECE, step, i * PIECE);
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < steps * V_PIECES; i += 32) {
      const int step = i / V_PIECES, column = threadIdx.y * TILE::COLUMNS + i % V_PIECES * V_PIECE;
      if (first_column_ + column < V)
        over_v((row + static_cast<i64>(step) * heads_) * V + first_column_ + column, step, column, step * COLUMNS + column);
    }
  }

  Storage& storage_;
  const Wkv7Inputs<T, W> in_;
  const i64 begin_, count_;
  const i32 heads_, head_;
  const int first_column_;
};

}  // namespace kiln
