// The inputs of RWKV7's recurrence on their way to the threads of a block: STEPS tokens at a time are copied to shared memory as they are, two such
// chunks ahead, and made floats there once for all warps, with what depends on the token alone worked out.
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/math.cuh"
#include "recurrent/sequences.cuh"

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
    f32 rkab[4][TILE::PADDED], w[TILE::PADDED], v[COLUMNS];  // r times scale
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

  // For `head` of the tokens of `span`, and the block's `columns` from first_column on.
  __device__ __forceinline__ Wkv7Steps(Storage& storage, const Wkv7Inputs<T, W>& in, f32 scale, Sequence span,
                                       i32 heads, i32 head, int first_column, int columns)
      : storage_(storage),
        in_(in),
        scale_(scale),
        begin_(span.begin),
        chunks_(static_cast<int>(ceil_div(span.end - span.begin, STEPS))),
        last_count_(static_cast<int>(span.end - span.begin - static_cast<i64>(chunks_ - 1) * STEPS)),
        heads_(heads),
        head_(head),
        first_column_(first_column),
        columns_(columns < V - first_column ? columns : V - first_column) {}

  __device__ __forceinline__ int chunks() const { return chunks_; }
  // Steps of a chunk.
  __device__ __forceinline__ int count(int chunk) const {
    return chunk < chunks_ - 1 ? STEPS : chunk < chunks_ ? last_count_ : 0;
  }

  // One warp calls begin(), and then make() of one chunk after the other.
  __device__ __forceinline__ void begin() {
    if constexpr (TILE::PADDED > K) {  // rows that pad K are zero, also those of decay: they leave no trace
      f32* words = storage_.ready[0][0].rkab[0];
      for (int i = threadIdx.x; i < static_cast<int>(sizeof(storage_.ready) / sizeof(f32)); i += 32)
        words[i] = 0.0f;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < AHEAD; ++chunk) fetch(chunk);
  }

  // Makes ready(chunk), which others may read behind a barrier.
  __device__ __forceinline__ void make(int chunk) {
    copy_async_wait<AHEAD - 1>();
    __syncwarp();
    const int at = chunk % AHEAD, steps = count(chunk);
    Step* ready = storage_.ready[chunk % 2];
    each_of_four([&](int vector, int column) {
      const T *from = storage_.rkab[at][vector] + column, *kk = storage_.rkab[at][2] + column;
      f32* to = ready->rkab[vector] + column;
      const f32 factor = vector == 0 ? scale_ : 1.0f;
#pragma unroll 4
      for (int step = 0; step < steps; ++step) {
        f32 x[PIECE], other[PIECE];
        widen(load_shared<PIECE>(from + step * K), x);
        if constexpr (FORM == Wkv7Form::kk_a) widen(load_shared<PIECE>(kk + step * K), other);
        for (int i = 0; i < PIECE; ++i) x[i] *= FORM == Wkv7Form::kk_a && vector == 3 ? -other[i] : factor;
        store_shared(to + step * STRIDE, x);
      }
    });
    each<PIECES>(steps, [&](int step, int piece) {
      f32 x[PIECE];
      widen(load_shared<PIECE>(storage_.w[at] + step * K + piece * PIECE), x);
      for (int i = 0; i < PIECE; ++i) x[i] = exp2_approx(x[i] * LOG2_E);
      store_shared(ready[step].w + piece * PIECE, x);
    });
    each<V_PIECES>(steps, [&](int step, int piece) {
      f32 x[V_PIECE];
      widen(load_shared<V_PIECE>(storage_.v[at] + step * COLUMNS + piece * V_PIECE), x);
      store_shared(ready[step].v + piece * V_PIECE, x);
    });
    __syncwarp();
    fetch(chunk + AHEAD);
  }

  // Until the chunk after the next one is made.
  __device__ __forceinline__ const Step* ready(int chunk) const { return storage_.ready[chunk % 2]; }

 private:
  static constexpr int PIECE = K % 8 == 0 ? 8 : 4, PIECES = K / PIECE, STRIDE = sizeof(Step) / sizeof(f32);
  static constexpr int V_PIECE = V % 8 == 0 && TILE::COLUMNS % 8 == 0 ? 8 : 4, V_PIECES = COLUMNS / V_PIECE;

  // Begins to copy a chunk; one group of copies, an empty one behind the last chunk.
  __device__ __forceinline__ void fetch(int chunk) {
    const int at = chunk % AHEAD, steps = count(chunk);
    const i64 row = (begin_ + static_cast<i64>(chunk) * STEPS) * heads_ + head_;
    each_of_four([&](int vector, int column) {
      T* to = storage_.rkab[at][vector] + column;
      const T* from = (vector == 0   ? in_.r
                       : vector == 1 ? in_.k
                       : vector == 2 ? in_.a
                                     : in_.b) +
                      row * K + column;
#pragma unroll 4
      for (int step = 0; step < steps; ++step, from += static_cast<i64>(heads_) * K)
        copy_async<PIECE>(to + step * K, from);
    });
    each<PIECES>(steps, [&](int step, int piece) {
      copy_async<PIECE>(storage_.w[at] + step * K + piece * PIECE,
                        in_.w + (row + static_cast<i64>(step) * heads_) * K + piece * PIECE);
    });
    each<V_PIECES>(steps, [&](int step, int piece) {
      if (piece * V_PIECE < columns_) {
        copy_async<V_PIECE>(
            storage_.v[at] + step * COLUMNS + piece * V_PIECE,
            in_.v + (row + static_cast<i64>(step) * heads_) * V + first_column_ + piece * V_PIECE);
      }
    });
    copy_async_commit();
  }

  // This lane's pieces of r, k, a and b: f(which of them, column).
  template <typename F>
  __device__ static __forceinline__ void each_of_four(F f) {
#pragma unroll
    for (int i = threadIdx.x; i < 4 * PIECES; i += 32) f(i / PIECES, i % PIECES * PIECE);
  }
  // This lane's of the PIECES of each step: f(step, piece).
  template <int PIECES, typename F>
  __device__ static __forceinline__ void each(int steps, F f) {
#pragma unroll 2
    for (int i = threadIdx.x; i < steps * PIECES; i += 32) f(i / PIECES, i % PIECES);
  }

  Storage& storage_;
  const Wkv7Inputs<T, W> in_;
  const f32 scale_;
  const i64 begin_;
  const int chunks_, last_count_;
  const i32 heads_, head_;
  const int first_column_, columns_;
};

}  // namespace kiln
