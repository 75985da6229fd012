// Wkv7Steps brings the inputs of RWKV7's recurrence to the threads of a block.
//
// STEPS tokens at a time, a chunk, are copied to shared memory unchanged, two chunks ahead. One warp then
// converts them to floats there, once for all warps. It also computes the values that depend on the token
// alone: exp(w), scale * r and kk * a.
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/math.cuh"
#include "recurrent/sequences.cuh"

namespace kiln {

enum class Wkv7Form {
  a_b,   // a and b are inputs
  kk_a,  // kk and a are inputs; the recurrence's a is -kk, its b is kk * a
};

// The arrays in global memory, without gaps: v is [tokens, heads, V], the others are [tokens, heads, K].
// REQUIRES: each is aligned to the bytes of gcd(K or V, 8) elements, or to 16 bytes.
template <typename T, typename W>
struct Wkv7Inputs {
  const T *r, *k, *a, *b;  // with Wkv7Form::kk_a, `a` holds kk and `b` holds a
  const W* w;
  const T* v;
};

// Copies the inputs of one head and makes them ready, for the columns of the state in one block.
// TILE is a StateTile<K, V, ..>. A block holds at most COLUMNS columns. STEPS tokens are a chunk.
template <typename T, typename W, int K, int V, Wkv7Form FORM, typename TILE, int COLUMNS, int STEPS>
class Wkv7Steps {
 public:
  static constexpr int AHEAD = 2;  // chunks whose copies are under way
  // The inputs of one token. With kk_a, a and b both have the opposite sign; this does not change b (a^T S).
  struct Step {
    f32 rkab[4][TILE::PADDED], w[TILE::PADDED], v[COLUMNS];  // r is multiplied by scale; w is exp(w)
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

  // The steps are the tokens of `span`, for `head`. The block holds `columns` columns of the state from
  // first_column on; columns from V on are not copied.
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
  // Returns the number of steps in a chunk: STEPS, fewer in the last chunk, and 0 after it.
  __device__ __forceinline__ int count(int chunk) const {
    return chunk < chunks_ - 1 ? STEPS : chunk < chunks_ ? last_count_ : 0;
  }

  // One warp calls begin(), and then make() for every chunk, in order.
  __device__ __forceinline__ void begin() {
    if constexpr (TILE::PADDED > K) {
      // Rows from K to PADDED are 0 in all inputs, decay included, so they add nothing to a sum.
      f32* words = storage_.ready[0][0].rkab[0];
      for (int i = threadIdx.x; i < static_cast<int>(sizeof(storage_.ready) / sizeof(f32)); i += 32)
        words[i] = 0.0f;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < AHEAD; ++chunk) fetch(chunk);
  }

  // Fills ready(chunk), which other warps may read after a barrier.
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

  // Returns the STEPS steps of a chunk; they stay until make(chunk + 2) overwrites them.
  __device__ __forceinline__ const Step* ready(int chunk) const { return storage_.ready[chunk % 2]; }

 private:
  static constexpr int PIECE = K % 8 == 0 ? 8 : 4, PIECES = K / PIECE, STRIDE = sizeof(Step) / sizeof(f32);
  static constexpr int V_PIECE = V % 8 == 0 && TILE::COLUMNS % 8 == 0 ? 8 : 4, V_PIECES = COLUMNS / V_PIECE;

  // Begins to copy a chunk, as one group of copies.
  // make() waits by the number of groups, so a chunk after the last one is an empty group.
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

  // Calls f(vector, column) for each of this lane's pieces of r, k, a and b, which are the vectors 0 to 3.
  template <typename F>
  __device__ static __forceinline__ void each_of_four(F f) {
#pragma unroll
    for (int i = threadIdx.x; i < 4 * PIECES; i += 32) f(i / PIECES, i % PIECES * PIECE);
  }
  // Calls f(step, piece) for this lane's share of the PIECES pieces of each step.
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
