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
  __device__ __forceinline__ void load(Stage& stage, const DplrChunk& chunk) const {
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
      multiply<true>(stage, DPLR_TOKENS / 2, sums);
    } else {
#pragma unroll 1
      for (int apart = DPLR_TOKENS; apart > 0; apart /= 2) multiply<false>(stage, apart / 2, sums);
      decay_rows(stage);
    }
    put_square(stage.a_k, sums.ak);
    put_square(stage.r_b, sums.rb);
    put_square(stage.r_k, sums.rk);
    __syncwarp();  // no lane needs the gates
    invert(stage, sums.ab);
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
      const u32 at = SWIZZLED ? Swizzled<N * sizeof(E)>::offset(row, part) : (row * PARTS + part) * 16;
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

  // Computes the sums for some pairs (i, j) of tokens, and sets them in `sums`.
  // - MILD: all pairs. Decays are relative to the chunk's middle, and `apart` is half a chunk. decay_rows() is done, too: the
  //   decays up to the middle, or from there on, make its decays from these.
  // - `apart` is 8, 4, 2 or 1: the pairs whose tokens lie in neighbouring groups of `apart` tokens, of which the first has an
  //   even number. Decays are relative to the place between the groups. i has operands only as a row, and j as a column.
  // - `apart` is 0: the pairs i = j, whose d(i, j) is 1.
  template <bool MILD>
  __device__ __forceinline__ void multiply(Stage& stage, int apart, Products& sums) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Products d = {};
#pragma unroll 1
    for (int first = 0; first < K; first += 32) {
      u32 rows_a[2][4], rows_r[2][4], columns_b[2][4], columns_k[2][4];  // of tokens g and g + 8; 8 keys
      f32 there[8], begun[8], left[8];
      if (MILD) {
        read_gates(DPLR_TOKENS / 2, first + t * 8, there);
        read_gates(DPLR_TOKENS, first + t * 8, left);
        for (int i = 0; i < 8; ++i)
          begun[i] = exp2_approx(there[i]), left[i] = exp2_approx(left[i] - there[i]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = g + half * 8, at = (token & -2 * apart) + apart;
        const bool below = MILD || apart == 0 || (token & apart) != 0, above = MILD || apart == 0 || !below;
        f32 r[8], k[8], a[8], b[8], before[8], after[8];
        const int part = first / 8 + t, key = read(stage, token, part, r, k, a, b);
        read_gates(token, key, before);
        read_gates(token + 1, key, after);
        if (!MILD) read_gates(at, key, there);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (!MILD && apart == 0) before[i] = after[i] = there[i];
          const f32 since = after[i] - there[i], column = above ? exp2_approx(-since) : 0.0f;
          a[i] *= below ? exp2_approx(before[i] - there[i]) : 0.0f;
          r[i] *= below ? exp2_approx(since) : 0.0f;
          b[i] *= column, k[i] *= column;
        }
        pack_eight(rows_a[half], a);
        pack_eight(rows_r[half], r);
        pack_eight(columns_b[half], b);
        pack_eight(columns_k[half], k);
        if (MILD) {
#pragma unroll
          for (int i = 0; i < 8; ++i) a[i] *= begun[i], r[i] *= begun[i], b[i] *= left[i], k[i] *= left[i];
          write_rows(stage, token, part, r, k, a, b);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const u32 a[4] = {rows_a[0][i], rows_a[1][i], rows_a[0][i + 1], rows_a[1][i + 1]};
        const u32 r[4] = {rows_r[0][i], rows_r[1][i], rows_r[0][i + 1], rows_r[1][i + 1]};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma<T>(d.ab[n], a, columns_b[n][i], columns_b[n][i + 1]);
          mma<T>(d.ak[n], a, columns_k[n][i], columns_k[n][i + 1]);
          mma<T>(d.rb[n], r, columns_b[n][i], columns_b[n][i + 1]);
          mma<T>(d.rk[n], r, columns_k[n][i], columns_k[n][i + 1]);
        }
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
        if (pair && j < i) sums.ab[n][e] = d.ab[n][e], sums.ak[n][e] = d.ak[n][e];
        if (pair && j <= i) sums.rb[n][e] = d.rb[n][e], sums.rk[n][e] = d.rk[n][e];
      }
    }
  }

  // Multiplies the lane's elements of r, k, a and b in place by the decays that the products with the state need.
  __device__ __forceinline__ void decay_rows(Stage& stage) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int first = 0; first < K / 8; first += 4) {
      const int part = first + t;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = g + half * 8;
        f32 r[8], k[8], a[8], b[8], before[8], after[8], whole[8];
        const int key = read(stage, token, part, r, k, a, b);
        read_gates(token, key, before);
        read_gates(token + 1, key, after);
        read_gates(DPLR_TOKENS, key, whole);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const f32 left = exp2_approx(whole[i] - after[i]);
          a[i] *= exp2_approx(before[i]);
          r[i] *= exp2_approx(after[i]);
          b[i] *= left, k[i] *= left;
        }
        write_rows(stage, token, part, r, k, a, b);
      }
    }
  }

  // Writes (I - AB)^-1 in blocks of 8 x 8. D and E are the inverses of the diagonal blocks, in f32. With C the lower left block
  // of AB, that of the inverse is E C D, in TF32. The upper right block is 0.
  __device__ __forceinline__ void invert(Stage& stage, const f32 (&ab)[2][4]) {
    constexpr int PITCH = 20;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    f32* const block = scratch_.gate + Scratch::PITCH;  // row 0 of the gates stays
    const auto place = [&](int row, int column) { return block + row * PITCH + column; };
    const auto pair = [&](int row, int column) { return reinterpret_cast<float2*>(place(row, column)); };
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *pair(g + h * 8, n * 8 + t * 2) = make_float2(ab[n][h * 2], ab[n][h * 2 + 1]);
    }
    __syncwarp();
    const int column = lane % 8,
              first = lane / 8 % 2 * 8;  // a lane has a column of D or E; two lanes have the same
    f32 x[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      f32 sum = r == column ? 1.0f : 0.0f;
#pragma unroll
      for (int k = 0; k < r; k += 4) {
        const float4 a = *reinterpret_cast<const float4*>(place(first + r, first + k));
        const f32 row[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (k + i < r) sum = fmaf(row[i], x[k + i], sum);
        }
      }
      x[r] = sum;
    }
    __syncwarp();  // all lanes have read the diagonal blocks
    if (lane < 16) {
#pragma unroll
      for (int r = 0; r < 8; ++r) *place(first + r, first + column) = x[r];
    }
    __syncwarp();
    const float2 d = *pair(g, t * 2), e = *pair(8 + g, 8 + t * 2);
    const f32 left[4] = {round_to_tf32(e.x), 0.0f, round_to_tf32(e.y), 0.0f};
    f32 ec[4] = {}, ecd[4] = {};
    mma_tf32(ec, left, round_to_tf32(*place(8 + t * 2, g)), round_to_tf32(*place(9 + t * 2, g)));
    const f32 next[4] = {round_to_tf32(ec[0]), 0.0f, round_to_tf32(ec[1]), 0.0f};
    mma_tf32(ecd, next, round_to_tf32(*place(t * 2, g)), round_to_tf32(*place(t * 2 + 1, g)));
    const f32 inverse[2][4] = {{d.x, d.y, ecd[0], ecd[1]}, {0.0f, 0.0f, e.x, e.y}};
    put_square(stage.inverse, inverse);
    __syncwarp();  // the next chunk's gates take the place of the block
  }

  // Reads 8 neighbouring elements of a token's r, k, a and b, and returns the number of the first. r is multiplied by scale.
  // With kk_a, a and b both have the opposite sign; this does not change b (a^T S).
  __device__ __forceinline__ int read(const Stage& stage, int token, int part, f32 (&r)[8], f32 (&k)[8],
                                      f32 (&a)[8], f32 (&b)[8]) const {
    const u32 at = DplrRows<K>::offset(token, part) / sizeof(T);
    widen(load_shared<8>(stage.r + at), r);
    widen(load_shared<8>(stage.k + at), k);
    widen(load_shared<8>(stage.a + at), a);
    widen(load_shared<8>(stage.b + at), b);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      r[i] *= scale_;
      if (FORM == Wkv7Form::kk_a) b[i] *= -a[i];
    }
    return part * 8;
  }
  __device__ __forceinline__ f32* gates(int row) const { return scratch_.gate + row * Scratch::PITCH; }
  __device__ __forceinline__ void read_gates(int row, int key, f32 (&gate)[8]) const {
    widen(load_shared<8>(gates(row) + key), gate);
  }

  __device__ static __forceinline__ void pack_eight(u32 (&packed)[4], const f32 (&x)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = pack<T>(x[2 * i], x[2 * i + 1]);
  }
  __device__ static __forceinline__ void write_rows(Stage& stage, int token, int part, const f32 (&r)[8],
                                                    const f32 (&k)[8], const f32 (&a)[8], const f32 (&b)[8]) {
    write_eight(stage.r, token, part, r);
    write_eight(stage.k, token, part, k);
    write_eight(stage.a, token, part, a);
    write_eight(stage.b, token, part, b);
  }
  __device__ static __forceinline__ void write_eight(T* rows, int token, int part, const f32 (&x)[8]) {
    u32 packed[4];
    pack_eight(packed, x);
    *reinterpret_cast<uint4*>(reinterpret_cast<u8*>(rows) + DplrRows<K>::offset(token, part)) =
        make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
  __device__ static __forceinline__ void put_square(T* square, const f32 (&d)[2][4]) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    u8* const bytes = reinterpret_cast<u8*>(square) + t * 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<u32*>(bytes + dplr_square(g + h * 8, n)) = pack<T>(d[n][h * 2], d[n][h * 2 + 1]);
    }
  }

  Scratch& scratch_;
  const Wkv7Inputs<T, W> in_;
  const i32 heads_;
  const f32 scale_;
};

}  // namespace kiln
