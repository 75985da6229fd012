// DplrPreparation makes a chunk of RWKV7's recurrence ready: all that does not depend on the state.
//
// Let S be the state before the chunk, d(i) the product of the decays up to token i of the chunk, for each key, and
// d(i, j) = d(i) / d(j). With u(i) = a(i)^T (the state before token i), rows of the chunk's matrices follow:
//
//     u = (I - AB)^-1 ((d(i - 1) a)^T S + AK v),  AB(i, j) = sum of d(i - 1, j) a(i) b(j) for j < i, AK alike
//     o(i) = (d(i) r(i))^T S + RB u + RK v,       RB(i, j) = sum of d(i, j) r(i) b(j) for j <= i, RK alike
//     next S = d(last) S + sum of d(last, j) (b(j) u(j)^T + k(j) v(j)^T)
//
// The sums over keys are products on tensor cores, whose operands have decays relative to a token `at` between j and i:
// d(i, j) = d(i, at) d(at, j).
// - Where no key decays much within the chunk, `at` is the chunk's middle, for all pairs at once.
// - Otherwise five products have the pairs of 8, 4, 2 and 1 neighbours, and the diagonal. Each of their pairs lies on both
//   sides of its `at`, so that no exponent is positive, and decays may underflow.
#pragma once
#include "dplr/chunks.cuh"
#include "dplr/squares.cuh"
#include "kiln/copy_async.cuh"
#include "kiln/math.cuh"
#include "kiln/mma.cuh"
#include "recurrent/wkv7_steps.cuh"

namespace kiln {

// Logarithms to base 2 of decays count as at least this. 2^-128 times a state is 0 for all purposes, and a sum of 16 of
// them still has a precision of 2^-13.
inline constexpr f32 DPLR_LEAST_LOG_DECAY = -128.0f;

// A warp prepares chunks of the arrays `in`. A chunk has DPLR_COLUMNS columns of v.
//
// Lane 4g + t has tokens g and g + 8. Of each 32 keys it has 8t to 8t + 7. These are the elements that it needs as an
// operand of mma(), because a product may take the keys in any order.
template <typename T, typename W, int K, int V, Wkv7Form FORM>
class DplrPreparation {
 public:
  using Stage = DplrStage<T, W, K>;
  using Scratch = DplrScratch<K>;

  __device__ __forceinline__ DplrPreparation(Scratch& scratch, const Wkv7Inputs<T, W>& in, i32 heads,
                                             f32 scale)
      : scratch_(scratch), in_(in), heads_(heads), scale_(scale) {
    for (int key = threadIdx.x % 32; key < K; key += 32) scratch.gate[key] = 0.0f;
  }

  // Begins the copies of a chunk. Tokens after the end of its sequence become zeros.
  __device__ __forceinline__ void begin(Stage& stage, const DplrChunk& chunk) const {
    copy_rows<K, K, false>(chunk, 0, in_.w, stage.w);
    copy_rows<K, K, true>(chunk, 0, in_.r, stage.r, in_.k, stage.k, in_.a, stage.a, in_.b, stage.b);
    copy_rows<DPLR_COLUMNS, V, true>(chunk, chunk.slice * DPLR_COLUMNS, in_.v, stage.v);
  }

  // Prepares a chunk whose copies have arrived for all lanes of the warp.
  __device__ __forceinline__ void make(Stage& stage) {
    const bool mild = sum_gates(stage);
    __syncwarp();
    Products sums = {};
    if (mild) {
      multiply<true, true, true>(stage, DPLR_TOKENS / 2, sums);
    } else {
#pragma unroll 1
      for (int apart = DPLR_TOKENS; apart > 0; apart /= 2) {  // fewer sums at a time need fewer registers
        multiply<false, true, false>(stage, apart / 2, sums);
        multiply<false, false, true>(stage, apart / 2, sums);
      }
      decay_rows(stage);
    }
    put_square(stage.a_k, sums.ak);
    put_square(stage.r_b, sums.rb);
    put_square(stage.r_k, sums.rk);
    __syncwarp();  // no lane needs the gates
    f32 inverse[2][4];
    invert_square(inverse, sums.ab, gates(1));  // row 0 of the gates stays
    put_square(stage.inverse, inverse);
    __syncwarp();  // the next chunk's gates take the place of the block
  }

 private:
  // Products of 16 x 16 tokens, as mma() has them; [i] has columns 8i to 8i + 7.
  struct Products {
    f32 ab[2][4], ak[2][4], rb[2][4], rk[2][4];
  };

  // Copies N elements of each token, from element `first` of its head on, for pairs of an array and its rows in the stage. A
  // head has SIZE elements.
  template <int N, int SIZE, bool SWIZZLED, typename E, typename... More>
  __device__ __forceinline__ void copy_rows(const DplrChunk& chunk, int first, const E* from, E* to,
                                            More... more) const {
    constexpr int EACH = 16 / static_cast<int>(sizeof(E)), PARTS = N / EACH, ROWS = 32 / PARTS;
    const int lane = threadIdx.x % 32, part = lane % PARTS;
    const i64 begin = (static_cast<i64>(chunk.first) * heads_ + chunk.head) * SIZE + first + part * EACH;
    const i64 stride = static_cast<i64>(heads_) * SIZE;
#pragma unroll
    for (int i = 0; i < DPLR_TOKENS; i += ROWS) {
      const int row = i + lane / PARTS;
      const u32 at = SWIZZLED ? DplrRows<N>::offset(row, part) : (row * PARTS + part) * 16;
      const bool exists = chunk.first + row < chunk.end;
      copy_part(exists ? begin + row * stride : 0, at, exists, from, to, more...);
    }
  }
  template <typename E, typename... More>
  __device__ static __forceinline__ void copy_part(i64 element, u32 at, bool exists, const E* from, E* to,
                                                   More... more) {
    copy_async_or_zero(shared_address(to) + at, from + element, exists);
    if constexpr (sizeof...(more) > 0) copy_part(element, at, exists, more...);
  }

  // Sums the logarithms of the decays, and writes the sums and the decays over the chunk. A lane has two neighbouring keys
  // of each 64. Returns true, in all lanes, if no factor of multiply<true>() leaves the range in which T is precise.
  __device__ __forceinline__ bool sum_gates(Stage& stage) {
    constexpr f32 RANGE = same<T, f16> ? 8.0f : 40.0f;
    bool mild = true;
#pragma unroll
    for (int first = 0; first < K; first += 64) {
      const int key = first + threadIdx.x % 32 * 2;
      f32 sum[2] = {}, middle[2];
#pragma unroll
      for (int row = 0; row < DPLR_TOKENS; ++row) {
        f32 w[2];
        widen(load_shared<2>(stage.w + row * K + key), w);
        for (int e = 0; e < 2; ++e) sum[e] += fmaxf(w[e] * LOG2_E, DPLR_LEAST_LOG_DECAY);
        *reinterpret_cast<float2*>(gates(row + 1) + key) = make_float2(sum[0], sum[1]);
        if (row == DPLR_TOKENS / 2 - 1) middle[0] = sum[0], middle[1] = sum[1];
      }
      for (int e = 0; e < 2; ++e)
        mild = mild && fabsf(middle[e]) <= RANGE && fabsf(sum[e] - middle[e]) <= RANGE;
      *reinterpret_cast<float2*>(stage.kept + key) = make_float2(exp2_approx(sum[0]), exp2_approx(sum[1]));
    }
    return __any_sync(~0u, !mild) == 0;
  }

  // Computes the sums for some pairs (i, j) of tokens, of a with A and of r with R, and sets them in `sums`.
  // - MILD: all pairs. Decays are relative to the chunk's middle, and `apart` is half a chunk. decay_rows() is done, too: the
  //   decays up to the middle, or from there on, make its decays from these.
  // - `apart` is 8, 4, 2 or 1: the pairs whose tokens lie in neighbouring groups of `apart` tokens, of which the first has an
  //   even number. Decays are relative to the place between the groups. i has operands only as a row, and j as a column.
  // - `apart` is 0: the pairs i = j, whose d(i, j) is 1.
  template <bool MILD, bool A, bool R>
  __device__ __forceinline__ void multiply(Stage& stage, int apart, Products& sums) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Products d = {};
#pragma unroll 1
    for (int part = t; part < K / 8; part += 4) {
      Rows rows[2];  // of tokens g and g + 8
      for (int half = 0; half < 2; ++half) rows[half] = read(stage, g + half * 8, part);
#pragma unroll
      for (int four = 0; four < 2; ++four) {
        const int key = part * 8 + four * 4;
        f32 there[4], begun[4], left[4];
        if (MILD) {
          read_gates(DPLR_TOKENS / 2, key, there);
          read_gates(DPLR_TOKENS, key, left);
          for (int i = 0; i < 4; ++i)
            begun[i] = exp2_approx(there[i]), left[i] = exp2_approx(left[i] - there[i]);
        }
        u32 rows_a[4], rows_r[4], columns_b[4],
            columns_k[4];  // operands of mma(), columns in the order of a left one
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int token = g + half * 8, at = (token & -2 * apart) + apart;
          const bool below = MILD || apart == 0 || (token & apart) != 0, above = MILD || apart == 0 || !below;
          Four x = widened(rows[half], four);
          f32 before[4], after[4];
          read_gates(token, key, before);
          read_gates(token + 1, key, after);
          if (!MILD) read_gates(at, key, there);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (!MILD && apart == 0) before[i] = after[i] = there[i];
            const f32 since = after[i] - there[i], column = above ? exp2_approx(-since) : 0.0f;
            x.a[i] *= below ? exp2_approx(before[i] - there[i]) : 0.0f;
            x.r[i] *= below ? exp2_approx(since) : 0.0f;
            x.b[i] *= column, x.k[i] *= column;
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            rows_a[half + i * 2] = pack<T>(x.a[2 * i], x.a[2 * i + 1]);
            rows_r[half + i * 2] = pack<T>(x.r[2 * i], x.r[2 * i + 1]);
            columns_b[half + i * 2] = pack<T>(x.b[2 * i], x.b[2 * i + 1]);
            columns_k[half + i * 2] = pack<T>(x.k[2 * i], x.k[2 * i + 1]);
          }
          if (MILD) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
              x.a[i] *= begun[i], x.r[i] *= begun[i], x.b[i] *= left[i], x.k[i] *= left[i];
            narrow_to(rows[half], four, x);
          }
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          if (A) mma<T>(d.ab[n], rows_a, columns_b[n], columns_b[n + 2]);
          if (A) mma<T>(d.ak[n], rows_a, columns_k[n], columns_k[n + 2]);
          if (R) mma<T>(d.rb[n], rows_r, columns_b[n], columns_b[n + 2]);
          if (R) mma<T>(d.rk[n], rows_r, columns_k[n], columns_k[n + 2]);
        }
      }
      if (MILD) {
        for (int half = 0; half < 2; ++half) write(stage, g + half * 8, part, rows[half]);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = g + e / 2 * 8, j = n * 8 + t * 2 + e % 2;
        const bool pair =
            MILD ||
            (apart == 0 ? i == j : (i & apart) && !(j & apart) && (i & -2 * apart) == (j & -2 * apart));
        if (A && pair && j < i) sums.ab[n][e] = d.ab[n][e], sums.ak[n][e] = d.ak[n][e];
        if (R && pair && j <= i) sums.rb[n][e] = d.rb[n][e], sums.rk[n][e] = d.rk[n][e];
      }
    }
  }

  // Multiplies the lane's elements of r, k, a and b in place by the decays that the products with the state need.
  __device__ __forceinline__ void decay_rows(Stage& stage) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1
    for (int part = t; part < K / 8; part += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = g + half * 8;
        Rows rows = read(stage, token, part);
#pragma unroll
        for (int four = 0; four < 2; ++four) {
          const int key = part * 8 + four * 4;
          Four x = widened(rows, four);
          f32 before[4], after[4], whole[4];
          read_gates(token, key, before);
          read_gates(token + 1, key, after);
          read_gates(DPLR_TOKENS, key, whole);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const f32 left = exp2_approx(whole[i] - after[i]);
            x.a[i] *= exp2_approx(before[i]);
            x.r[i] *= exp2_approx(after[i]);
            x.b[i] *= left, x.k[i] *= left;
          }
          narrow_to(rows, four, x);
        }
        write(stage, token, part, rows);
      }
    }
  }

  // Eight neighbouring elements of a token's rows, and four of them.
  struct Rows {
    Vec<T, 8> r, k, a, b;
  };
  struct Four {
    f32 r[4], k[4], a[4], b[4];
  };
  __device__ static __forceinline__ Rows read(const Stage& stage, int token, int part) {
    const u32 at = DplrRows<K>::offset(token, part) / sizeof(T);
    return {load_shared<8>(stage.r + at), load_shared<8>(stage.k + at), load_shared<8>(stage.a + at),
            load_shared<8>(stage.b + at)};
  }
  __device__ static __forceinline__ void write(Stage& stage, int token, int part, const Rows& rows) {
    const u32 at = DplrRows<K>::offset(token, part) / sizeof(T);
    put(stage.r + at, rows.r), put(stage.k + at, rows.k), put(stage.a + at, rows.a),
        put(stage.b + at, rows.b);
  }
  __device__ static __forceinline__ void put(T* to, const Vec<T, 8>& x) {
    *reinterpret_cast<uint4*>(to) = make_uint4(x.word[0], x.word[1], x.word[2], x.word[3]);
  }
  // Returns the inputs of the recurrence. r is multiplied by scale. With kk_a, a and b both have the opposite sign; this does
  // not change b (a^T S).
  __device__ __forceinline__ Four widened(const Rows& rows, int four) const {
    Four x;
    widen_four(rows.r, four, x.r), widen_four(rows.k, four, x.k), widen_four(rows.a, four, x.a),
        widen_four(rows.b, four, x.b);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x.r[i] *= scale_;
      if (FORM == Wkv7Form::kk_a) x.b[i] *= -x.a[i];
    }
    return x;
  }
  __device__ static __forceinline__ void widen_four(const Vec<T, 8>& from, int four, f32 (&to)[4]) {
    Vec<T, 4> half;
    half.word[0] = from.word[four * 2], half.word[1] = from.word[four * 2 + 1];
    widen(half, to);
  }
  __device__ static __forceinline__ void narrow_to(Rows& rows, int four, const Four& x) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows.r.word[four * 2 + i] = pack<T>(x.r[2 * i], x.r[2 * i + 1]);
      rows.k.word[four * 2 + i] = pack<T>(x.k[2 * i], x.k[2 * i + 1]);
      rows.a.word[four * 2 + i] = pack<T>(x.a[2 * i], x.a[2 * i + 1]);
      rows.b.word[four * 2 + i] = pack<T>(x.b[2 * i], x.b[2 * i + 1]);
    }
  }
  __device__ __forceinline__ f32* gates(int row) const { return scratch_.gate + row * Scratch::PITCH; }
  __device__ __forceinline__ void read_gates(int row, int key, f32 (&gate)[4]) const {
    widen(load_shared<4>(gates(row) + key), gate);
  }

  Scratch& scratch_;
  const Wkv7Inputs<T, W> in_;
  const i32 heads_;
  const f32 scale_;
};

}  // namespace kiln
