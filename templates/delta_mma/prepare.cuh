// DeltaMmaPreparation makes a chunk of the delta rule ready: all that does not depend on the state.
//
// Let S be the state before the chunk, d(i) the product of the decays up to token i of the chunk, and d(i, j) = d(i) / d(j).
// The vectors u(i) that the steps write follow from one triangular system:
//
//     u = (I + A)^-1 beta (v - d k^T S),  A(i, j) = beta(i) d(i, j) k(i) . k(j)  for j < i
//     o(i) = d(i) q(i)^T S + sum of d(i, j) (q(i) . k(j)) u(j)  for j <= i
//     next S = d(last) S + sum of d(last, j) k(j) u(j)^T
//
// The preparation computes the matrices `inverse`, (I + A)^-1 beta, and `attention`, the weights d(i, j) q(i) . k(j). Norms of q
// and k, and decays of a head, are factors of products, so that q and k stay as they are. With a gate of each key, d is a
// vector, and the products have decays in their operands, relative to a token `at` between j and i: d(i, j) = d(i, at) d(at, j).
// - Where no key decays much within the chunk, `at` is the chunk's middle, for all pairs at once.
// - Otherwise five products have the pairs of 8, 4, 2 and 1 neighbours, and the diagonal. Each of their pairs lies on both
//   sides of its `at`, so that no exponent is positive, and decays may underflow.
#pragma once
#include "delta_mma/memory.cuh"
#include "dplr/chunks.cuh"
#include "dplr/squares.cuh"
#include "recurrent/chunk/gates.cuh"

namespace kiln {

// A warp prepares chunks of the arrays `in`. A chunk has COLUMNS columns of v.
//
// Lane 4g + t has tokens g and g + 8. Of each 32 keys it has 8t to 8t + 7. These are the elements that it needs as an
// operand of mma(), because a product may take the keys in any order.
template <typename T, typename G, typename B, int K, int V, int COLUMNS, Gate GATE, GateInput GATE_INPUT,
          Beta BETA, BetaInput BETA_INPUT, bool L2NORM>
class DeltaMmaPreparation {
  static constexpr bool KEYS = GATE == Gate::key;
  // How often norms() unrolls its loop. Unrolled in full, it keeps all rows in registers for multiply(), which spilled.
  static constexpr int PARTS_TOGETHER = larger(1, (GATE == Gate::none ? K / 64 : K / 32) / (COLUMNS / 64));

 public:
  using Stage = DeltaMmaStage<T, K, KEYS, COLUMNS>;
  using Scratch = DeltaMmaScratch<K, KEYS>;

  __device__ __forceinline__ DeltaMmaPreparation(Scratch& scratch, const DeltaInputs<T, G, B>& in)
      : scratch_(scratch), in_(in), scale_(in.scale == 0.0f ? 1.0f / sqrtf(static_cast<f32>(K)) : in.scale) {
    if constexpr (KEYS) {
      for (int key = threadIdx.x % 32; key < K; key += 32) scratch.gate[key] = 0.0f;
    }
  }

  // Begins the copies of a chunk. Tokens after the end of its sequence become zeros.
  __device__ __forceinline__ void begin(Stage& stage, const DplrChunk& chunk) {
    const int head = chunk.head / (in_.value_heads / in_.heads), lane = threadIdx.x % 32;
    const i64 token = chunk.first;
    count_ = smaller(chunk.end - chunk.first, DPLR_TOKENS);
    head_ = chunk.head;
    copy_rows<K>(stage.k, in_.k + token * in_.stride_k + static_cast<i64>(head) * K, in_.stride_k);
    copy_rows<K>(stage.q, in_.q + token * in_.stride_q + static_cast<i64>(head) * K, in_.stride_q);
    copy_rows<COLUMNS>(
        stage.v, in_.v + token * in_.stride_v + static_cast<i64>(chunk.head) * V + chunk.slice * COLUMNS,
        in_.stride_v);
    const i64 at = token * in_.value_heads + chunk.head;  // of g and beta
    if constexpr (KEYS) {
      constexpr int EACH = 16 / static_cast<int>(sizeof(G)), PARTS = K / EACH;
#pragma unroll
      for (int i = 0; i < DPLR_TOKENS * PARTS / 32; ++i) {
        const int row = (i * 32 + lane) / PARTS, part = (i * 32 + lane) % PARTS;
        const bool exists = row < count_;
        copy_async_or_zero(
            shared_address(raw_gates(stage, row) + part * EACH),
            in_.g + (at + (exists ? static_cast<i64>(row) * in_.value_heads : 0)) * K + part * EACH, exists);
      }
    }
    next_g_.word[0] = next_beta_.word[0] = 0;
    if (lane < count_) {
      if constexpr (GATE == Gate::head)
        next_g_ = load<1>(in_.g + at + static_cast<i64>(lane) * in_.value_heads);
      if constexpr (BETA == Beta::head)
        next_beta_ = load<1>(in_.beta + at + static_cast<i64>(lane) * in_.value_heads);
    }
  }

  // Prepares the chunk of begin(), whose copies have arrived for all lanes of the warp.
  __device__ __forceinline__ void make(Stage& stage) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    f32 beta = lane < count_ ? 1.0f : 0.0f;  // of token `lane`
    if (BETA == Beta::head && lane < count_) beta = beta_of<BETA_INPUT>(float_of(next_beta_));
    const f32 sum = GATE == Gate::head ? sum_of_gates() : 0.0f;  // up to token `lane`
    bool mild = true;
    if constexpr (KEYS) mild = sum_gates_of_keys(stage);
    f32 q_norm[2] = {1.0f, 1.0f}, k_norm[2] = {1.0f, 1.0f};  // of tokens g and g + 8
    if constexpr (L2NORM) norms(stage, q_norm, k_norm);
    __syncwarp();
    Products d = {};
    if constexpr (!KEYS) {
      multiply(stage, d);
    } else if (mild) {
      multiply_keys<true>(stage, DPLR_TOKENS / 2, d);
    } else {
#pragma unroll 1
      for (int apart = DPLR_TOKENS; apart > 0; apart /= 2) multiply_keys<false>(stage, apart / 2, d);
      decay_rows(stage);
    }

    f32 to[2], row_beta[2], whole = 0.0f;
    if (GATE == Gate::head) whole = from_lane(sum, DPLR_TOKENS - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to[h] = GATE == Gate::head ? from_lane(sum, g + h * 8) : 0.0f;
      row_beta[h] = from_lane(beta, g + h * 8);
      const f32 decay = GATE == Gate::head ? exp2_approx(to[h]) : 1.0f;
      const f32 left = GATE == Gate::head ? exp2_approx(whole - to[h]) : 1.0f;
      if (t == 0) stage.factors.key[g + h * 8] = decay * k_norm[h];
      if (t == 1) stage.factors.query[g + h * 8] = decay * q_norm[h] * scale_;
      if (t == 2) stage.factors.write[g + h * 8] = left * k_norm[h];
    }
    if constexpr (!KEYS) {
      if (lane == 0) stage.kept = GATE == Gate::head ? exp2_approx(whole) : 1.0f;
    }
    f32 column_beta[2][2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int j = n * 8 + t * 2 + e;
        const f32 from = GATE == Gate::head ? from_lane(sum, j) : 0.0f;
        const f32 norm = L2NORM ? from_lane(k_norm[n], (t * 2 + e) * 4) : 1.0f;
        column_beta[n][e] = from_lane(beta, j);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int i = g + h * 8;
          const f32 weight = GATE == Gate::head ? exp2_approx(to[h] - from) * norm : norm;
          f32 &a = d.kk[n][h * 2 + e], &of_q = d.qk[n][h * 2 + e];
          a = j < i ? a * (-row_beta[h] * k_norm[h] * weight) : 0.0f;
          of_q = j <= i ? of_q * (scale_ * q_norm[h] * weight) : 0.0f;
        }
      }
    }
    put_square(stage.attention, d.qk);
    __syncwarp();  // no lane needs the gates
    f32 inverse[2][4];
    if constexpr (KEYS) {
      invert_square(inverse, d.kk, gates(1));  // row 0 of the gates stays
    } else {
      invert_square(inverse, d.kk, scratch_.inverse);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) inverse[n][e] *= column_beta[n][e % 2];
    }
    put_square(stage.inverse, inverse);
    __syncwarp();  // the next chunk's gates take the place of the block
  }

 private:
  // Products of 16 x 16 tokens, as mma() has them; [i] has columns 8i to 8i + 7.
  struct Products {
    f32 kk[2][4], qk[2][4];
  };
  // Eight neighbouring elements of a token's rows, and four of them.
  struct Rows {
    Vec<T, 8> q, k;
  };
  struct Four {
    f32 q[4], k[4];
  };

  // Copies N elements of each token.
  template <int N>
  __device__ __forceinline__ void copy_rows(T* to, const T* from, i64 stride) const {
    constexpr int PARTS = N / 8, ROWS = 32 / PARTS;
    const int lane = threadIdx.x % 32, part = lane % PARTS;
    from += part * 8;
#pragma unroll
    for (int i = 0; i < DPLR_TOKENS; i += ROWS) {
      const int row = i + lane / PARTS;
      const bool exists = row < count_;
      copy_async_or_zero(shared_address(to) + DplrRows<N>::offset(row, part),
                         exists ? from + row * stride : from, exists);
    }
  }

  __device__ static __forceinline__ f32 from_lane(f32 x, int lane) { return __shfl_sync(~0u, x, lane); }

  // Returns the sum of the base-2 logarithms of the decays up to token `lane`. Lanes from DPLR_TOKENS on have other values.
  __device__ __forceinline__ f32 sum_of_gates() const {
    const int lane = threadIdx.x % 32;
    f32 rate = 1.0f, bias = 0.0f, sum = 0.0f;
    if constexpr (GATE_INPUT != GateInput::log_decay) {
      if (in_.a_log) rate = expf(load_one(in_.a_log + head_));
      if (in_.dt_bias) bias = load_one(in_.dt_bias + head_);
    }
    if (lane < count_) sum = log2_decay_of<GATE_INPUT>(float_of(next_g_) + bias, rate, in_.lower_bound);
#pragma unroll
    for (int before = 1; before < DPLR_TOKENS; before *= 2) {
      const f32 other = __shfl_up_sync(~0u, sum, before);
      if (lane >= before) sum += other;
    }
    return sum;
  }

  // Computes the factors that normalise q and k of tokens g and g + 8.
  __device__ __forceinline__ void norms(const Stage& stage, f32 (&q_norm)[2], f32 (&k_norm)[2]) const {
    const int lane = threadIdx.x % 32, g = lane / 4;
    f32 squares[2][2] = {};
#pragma unroll PARTS_TOGETHER
    for (int i = 0; i < K / 32; ++i) {
      const int part = lane % 4 + i * 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Rows rows = read(stage, g + h * 8, part);
        f32 q[8], k[8];
        widen(rows.q, q), widen(rows.k, k);
        for (int e = 0; e < 8; ++e) {
          squares[0][h] = fmaf(q[e], q[e], squares[0][h]);
          squares[1][h] = fmaf(k[e], k[e], squares[1][h]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      q_norm[h] = rsqrt_approx(warp_reduce<4>(squares[0][h], Sum{}) + 1e-6f);
      k_norm[h] = rsqrt_approx(warp_reduce<4>(squares[1][h], Sum{}) + 1e-6f);
    }
  }

  // Computes the products of q and k as they are.
  __device__ __forceinline__ void multiply(const Stage& stage, Products& d) const {
    const int lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
    for (int i = 0; i < K / 32; ++i) {
      const int part = lane % 4 + i * 4;
      const Rows rows[2] = {read(stage, g, part), read(stage, g + 8, part)};
#pragma unroll
      for (int four = 0; four < 2; ++four) {
        const int at = four * 2;
        const u32 k[4] = {rows[0].k.word[at], rows[1].k.word[at], rows[0].k.word[at + 1],
                          rows[1].k.word[at + 1]};
        const u32 q[4] = {rows[0].q.word[at], rows[1].q.word[at], rows[0].q.word[at + 1],
                          rows[1].q.word[at + 1]};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma<T>(d.kk[n], k, k[n], k[n + 2]);
          mma<T>(d.qk[n], q, k[n], k[n + 2]);
        }
      }
    }
  }

  // Returns where begin() copies the gates of a token.
  __device__ __forceinline__ G* raw_gates(Stage& stage, int row) const {
    if constexpr (sizeof(G) == 4) {
      return gates(row + 1);
    } else {
      return reinterpret_cast<G*>(stage.w) + row * K;
    }
  }

  // Sums the logarithms of the decays, and writes the sums and the decays over the chunk. A lane has two neighbouring keys
  // of each 64. Returns true, in all lanes, if no factor of multiply_keys<true>() leaves the range in which T is precise.
  __device__ __forceinline__ bool sum_gates_of_keys(Stage& stage) {
    constexpr f32 RANGE = same<T, f16> ? 8.0f : 40.0f;
    constexpr int TOGETHER = GATE_INPUT == GateInput::log_decay ? DPLR_TOKENS : 2;  // tokens in the code
    bool mild = true;
    f32 rate = 1.0f;
    if (GATE_INPUT != GateInput::log_decay && in_.a_log) rate = expf(load_one(in_.a_log + head_));
#pragma unroll
    for (int first = 0; first < K; first += 64) {
      const int key = first + threadIdx.x % 32 * 2;
      f32 bias[2] = {}, sum[2] = {}, middle[2] = {};
      if (GATE_INPUT != GateInput::log_decay && in_.dt_bias) {
        for (int e = 0; e < 2; ++e) bias[e] = load_one(in_.dt_bias + static_cast<i64>(head_) * K + key + e);
      }
#pragma unroll TOGETHER
      for (int row = 0; row < DPLR_TOKENS; ++row) {
        f32 raw[2];
        widen(load_shared<2>(raw_gates(stage, row) + key), raw);
        for (int e = 0; e < 2; ++e) {
          const f32 decay = log2_decay_of<GATE_INPUT>(raw[e] + bias[e], rate, in_.lower_bound);
          if (row < count_) sum[e] += decay;
        }
        *reinterpret_cast<float2*>(gates(row + 1) + key) = make_float2(sum[0], sum[1]);
        if (row == DPLR_TOKENS / 2 - 1) middle[0] = sum[0], middle[1] = sum[1];
      }
      for (int e = 0; e < 2; ++e)
        mild = mild && fabsf(middle[e]) <= RANGE && fabsf(sum[e] - middle[e]) <= RANGE;
      *reinterpret_cast<float2*>(stage.kept + key) = make_float2(exp2_approx(sum[0]), exp2_approx(sum[1]));
    }
    return __any_sync(~0u, !mild) == 0;
  }

  // Computes the products of some pairs (i, j) of tokens, and sets them in `sums`.
  // - MILD: all pairs. Decays are relative to the chunk's middle, and `apart` is half a chunk. decay_rows() is done, too: the
  //   decays up to the middle, or from there on, make its decays from these.
  // - `apart` is 8, 4, 2 or 1: the pairs whose tokens lie in neighbouring groups of `apart` tokens, of which the first has an
  //   even number. Decays are relative to the place between the groups. i has operands only as a row, and j as a column.
  // - `apart` is 0: the pairs i = j, whose d(i, j) is 1.
  template <bool MILD>
  __device__ __forceinline__ void multiply_keys(Stage& stage, int apart, Products& sums) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Products d = {};
#pragma unroll 1
    for (int part = t; part < K / 8; part += 4) {
      Rows rows[2] = {read(stage, g, part), read(stage, g + 8, part)};  // of tokens g and g + 8
      Vec<T, 8> writes[2];
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
        u32 rows_k[4], rows_q[4], columns[4];  // operands of mma(), columns in the order of a left one
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int token = g + half * 8, at = (token & -2 * apart) + apart;
          const bool below = MILD || apart == 0 || (token & apart) != 0, above = MILD || apart == 0 || !below;
          Four x = widened(rows[half], four);
          f32 after[4], w[4];
          read_gates(token + 1, key, after);
          if (!MILD) read_gates(at, key, there);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (!MILD && apart == 0) after[i] = there[i];
            const f32 since = after[i] - there[i];
            const f32 row = below ? exp2_approx(since) : 0.0f;
            w[i] = above ? x.k[i] * exp2_approx(-since) : 0.0f;
            x.k[i] *= row, x.q[i] *= row;
          }
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            rows_k[half + i * 2] = pack<T>(x.k[2 * i], x.k[2 * i + 1]);
            rows_q[half + i * 2] = pack<T>(x.q[2 * i], x.q[2 * i + 1]);
            columns[half + i * 2] = pack<T>(w[2 * i], w[2 * i + 1]);
          }
          if (MILD) {
#pragma unroll
            for (int i = 0; i < 4; ++i) x.k[i] *= begun[i], x.q[i] *= begun[i], w[i] *= left[i];
            narrow_to(rows[half], writes[half], four, x, w);
          }
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma<T>(d.kk[n], rows_k, columns[n], columns[n + 2]);
          mma<T>(d.qk[n], rows_q, columns[n], columns[n + 2]);
        }
      }
      if (MILD) {
        for (int half = 0; half < 2; ++half) write(stage, g + half * 8, part, rows[half], writes[half]);
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
        if (pair) sums.kk[n][e] = d.kk[n][e], sums.qk[n][e] = d.qk[n][e];
      }
    }
  }

  // Multiplies the lane's elements of q and k in place by the decays that the products with the state need, and writes w.
  __device__ __forceinline__ void decay_rows(Stage& stage) const {
    const int lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll 1
    for (int part = lane % 4; part < K / 8; part += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = g + half * 8;
        Rows rows = read(stage, token, part);
        Vec<T, 8> writes;
#pragma unroll
        for (int four = 0; four < 2; ++four) {
          const int key = part * 8 + four * 4;
          Four x = widened(rows, four);
          f32 after[4], whole[4], w[4];
          read_gates(token + 1, key, after);
          read_gates(DPLR_TOKENS, key, whole);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const f32 decay = exp2_approx(after[i]);
            w[i] = x.k[i] * exp2_approx(whole[i] - after[i]);
            x.k[i] *= decay, x.q[i] *= decay;
          }
          narrow_to(rows, writes, four, x, w);
        }
        write(stage, token, part, rows, writes);
      }
    }
  }

  __device__ static __forceinline__ Rows read(const Stage& stage, int token, int part) {
    const u32 at = DplrRows<K>::offset(token, part) / sizeof(T);
    return {load_shared<8>(stage.q + at), load_shared<8>(stage.k + at)};
  }
  __device__ static __forceinline__ void write(Stage& stage, int token, int part, const Rows& rows,
                                               const Vec<T, 8>& writes) {
    const u32 at = DplrRows<K>::offset(token, part) / sizeof(T);
    put(stage.q + at, rows.q), put(stage.k + at, rows.k), put(stage.w + at, writes);
  }
  __device__ static __forceinline__ void put(T* to, const Vec<T, 8>& x) {
    *reinterpret_cast<uint4*>(to) = make_uint4(x.word[0], x.word[1], x.word[2], x.word[3]);
  }
  __device__ static __forceinline__ Four widened(const Rows& rows, int four) {
    Four x;
    widen_four(rows.q, four, x.q), widen_four(rows.k, four, x.k);
    return x;
  }
  __device__ static __forceinline__ void widen_four(const Vec<T, 8>& from, int four, f32 (&to)[4]) {
    Vec<T, 4> half;
    half.word[0] = from.word[four * 2], half.word[1] = from.word[four * 2 + 1];
    widen(half, to);
  }
  __device__ static __forceinline__ void narrow_to(Rows& rows, Vec<T, 8>& writes, int four, const Four& x,
                                                   const f32 (&w)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows.q.word[four * 2 + i] = pack<T>(x.q[2 * i], x.q[2 * i + 1]);
      rows.k.word[four * 2 + i] = pack<T>(x.k[2 * i], x.k[2 * i + 1]);
      writes.word[four * 2 + i] = pack<T>(w[2 * i], w[2 * i + 1]);
    }
  }
  __device__ __forceinline__ f32* gates(int row) const { return scratch_.gate + row * Scratch::PITCH; }
  __device__ __forceinline__ void read_gates(int row, int key, f32 (&gate)[4]) const {
    widen(load_shared<4>(gates(row) + key), gate);
  }

  Scratch& scratch_;
  const DeltaInputs<T, G, B> in_;
  const f32 scale_;
  int count_, head_;  // of the chunk of begin(): its tokens, and the value head
  // Lane i has g and beta of token i. They are kept unconverted, because a conversion to float would wait for their loads.
  Vec<G, 1> next_g_;
  Vec<B, 1> next_beta_;
};

}  // namespace kiln
