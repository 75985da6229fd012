// DeltaSteps brings the inputs of the delta rule's time steps to the threads of a thread block.
//
// STEPS tokens at a time, a block of steps, are copied to shared memory unchanged. This happens one block of
// steps ahead. One warp then makes the inputs ready there: it widens, normalises and exponentiates them. The
// warp does so once for all columns of the state that the thread block holds.
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/math.cuh"
#include "kiln/reduce.cuh"

namespace kiln {

// The factor of the state before each step: none, exp(g) of the head, or exp(g) of each row (key). A gate of
// each row is Kimi Delta Attention.
enum class Gate { none, head, key };
// The meaning of the input g: the log decay itself, or a value from which it is computed.
enum class GateInput {
  log_decay,  // g itself
  softplus,   // -exp(a_log) * softplus(g + dt_bias)
  bounded,    // lower_bound * sigmoid(exp(a_log) * (g + dt_bias))
};
// The strength with which a step writes: 1, one beta per head, or one beta per head and column of the state.
enum class Beta { none, head, value };
// The function of the input beta that gives the strength.
enum class BetaInput { plain, sigmoid, twice_sigmoid };

// Returns the decay for g, to which the caller has added dt_bias. REQUIRES: rate = exp(a_log). expf and
// log1pf are the accurate functions, because n steps multiply the relative error of a decay by n. The sigmoid
// of a bounded gate is approximate (kiln/math.cuh).
template <GateInput INPUT>
__device__ __forceinline__ f32 decay_of(f32 g, f32 rate, f32 lower_bound) {
  if constexpr (INPUT == GateInput::softplus) g = -rate * (g > 20.0f ? g : log1pf(expf(g)));
  if constexpr (INPUT == GateInput::bounded) g = lower_bound * sigmoid(rate * g);
  return expf(g);
}

template <BetaInput INPUT>
__device__ __forceinline__ f32 beta_of(f32 beta) {
  if constexpr (INPUT == BetaInput::plain) return beta;
  return sigmoid(beta) * (INPUT == BetaInput::twice_sigmoid ? 2.0f : 1.0f);
}

// Returns the number of elements in the widest access that rows of n elements allow. REQUIRES: n % 4 == 0.
template <typename T>
__host__ __device__ constexpr int widest(int n) {
  return sizeof(T) == 2 && n % 8 == 0 ? 8 : 4;
}

template <typename T>
__device__ __forceinline__ f32 float_of(Vec<T, 1> one) {
  f32 v[1];
  widen(one, v);
  return v[0];
}

// Begins to copy `count` rows to shared memory; all lanes of the calling warp take part. Rows of `from` are
// `stride` elements apart. Only the first `valid` elements of a row exist and are copied.
template <int VEC, typename T, int STEPS, int LENGTH>
__device__ __forceinline__ void copy_steps(T (&to)[STEPS][LENGTH], const T* from, i64 stride, int count,
                                           int valid) {
  constexpr int CHUNKS = LENGTH / VEC, ROWS = CHUNKS < 32 ? 32 / CHUNKS : 1;  // rows at a time
  const int row = CHUNKS < 32 ? threadIdx.x / CHUNKS : 0, at = (threadIdx.x - row * CHUNKS) * VEC;
  if (row >= ROWS) return;
  from += row * stride;
#pragma unroll 4
  for (int step = row; step < count; step += ROWS, from += ROWS * stride) {
#pragma unroll
    for (int i = at; i < LENGTH; i += 32 * VEC) {
      if (i < valid) copy_async<VEC>(&to[step][i], from + i);
    }
  }
}

// Makes q and k of `count` steps ready as f32. L2NORM normalises both, q is multiplied by scale, and elements
// from K to PADDED are 0. One half of the warp has q and the other half has k.
template <bool L2NORM, typename T, int STEPS, int K, int PADDED>
__device__ __forceinline__ void widen_steps(f32 (&ready_q)[STEPS][PADDED], f32 (&ready_k)[STEPS][PADDED],
                                            const T (&q)[STEPS][K], const T (&k)[STEPS][K], f32 scale,
                                            int count) {
  constexpr int LANES = 16, MINE = static_cast<int>(ceil_div(PADDED / 4, LANES));
  const bool is_q = threadIdx.x < LANES;
  const int lane = threadIdx.x % LANES;
  const T* from = is_q ? q[0] : k[0];
  f32* ready = is_q ? ready_q[0] : ready_k[0];
#pragma unroll 4
  for (int step = 0; step < count; ++step) {
    f32 values[MINE][4] = {}, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      const int at = (lane + i * LANES) * 4;
      if (at < K) widen(load_shared<4>(from + step * K + at), values[i]);
      for (int j = 0; j < 4; ++j) squares = fmaf(values[i][j], values[i][j], squares);
    }
    f32 factor = is_q ? scale : 1.0f;
    if constexpr (L2NORM) factor *= rsqrt_approx(warp_reduce<LANES>(squares, Sum{}) + 1e-6f);
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      const int at = (lane + i * LANES) * 4;
      for (int j = 0; j < 4; ++j) values[i][j] *= factor;
      if (at < PADDED) store_shared(ready + step * PADDED + at, values[i]);
    }
  }
}

// Makes the decays of `count` steps ready, one per row of the state; they are 1 from K to PADDED.
// bias has K values, or is null.
template <GateInput INPUT, typename G, int STEPS, int K, int PADDED>
__device__ __forceinline__ void decay_steps(f32 (&decay)[STEPS][PADDED], const G (&g)[STEPS][K],
                                            const f32* bias, f32 rate, f32 lower_bound, int count) {
#pragma unroll 2
  for (int task = threadIdx.x; task < count * (PADDED / 4); task += 32) {
    const int step = task / (PADDED / 4), at = task % (PADDED / 4) * 4;
    f32 v[4] = {}, b[4] = {};
    if (at < K) widen(load_shared<4>(&g[step][at]), v);
    if (at < K && INPUT != GateInput::log_decay && bias) widen(load<4>(bias + at), b);
    for (int j = 0; j < 4; ++j) v[j] = at < K ? decay_of<INPUT>(v[j] + b[j], rate, lower_bound) : 1.0f;
    store_shared(&decay[step][at], v);
  }
}

// The arrays in global memory. REQUIRES: value_heads is a multiple of heads.
// - q and k are [tokens, heads, K], v is [tokens, value_heads, V]; strides are elements from token to token.
// - g is [tokens, value_heads], or with Gate::key [tokens, value_heads, K], without gaps.
// - beta is [tokens, value_heads], or with Beta::value [tokens, value_heads, V], without gaps.
// - a_log is [value_heads]. dt_bias is [value_heads], or with Gate::key [value_heads, K]. Null counts as 0.
// An array that GATE, BETA and GATE_INPUT do not use may be null.
template <typename T, typename G, typename B>
struct DeltaInputs {
  const T *q, *k, *v;
  const B* beta;
  const G* g;
  const f32 *a_log, *dt_bias;
  i64 stride_q, stride_k, stride_v;
  i32 heads, value_heads;
  f32 scale, lower_bound;  // a scale of 0 means 1 / sqrt(K)
};

// Copies the inputs of one value head and makes them ready for the columns of a thread block.
// TILE is a StateTile<K, V, ..>. At most WARPS warps hold columns. STEPS tokens are a block of steps.
template <typename T, typename G, typename B, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA,
          BetaInput BETA_INPUT, bool L2NORM, int VEC, typename TILE, int WARPS, int STEPS>
class DeltaSteps {
  static constexpr int COLUMNS = TILE::COLUMNS * WARPS, PADDED = TILE::PADDED;

 public:
  // The inputs as they are in global memory. Rows that GATE or BETA does not use have one element.
  struct Raw {
    alignas(16) T q[STEPS][K];
    alignas(16) T k[STEPS][K];
    alignas(16) G g[STEPS][GATE == Gate::key ? K : 1];
  };
  struct Values {
    alignas(16) T v[STEPS][COLUMNS];
    alignas(16) B beta[STEPS][BETA == Beta::value ? COLUMNS : 1];
  };
  // Rows of the state from K to PADDED do not exist: their q and k are 0, and their decay is 1.
  struct Ready {
    alignas(16) f32 q[STEPS][PADDED];  // multiplied by scale
    alignas(16) f32 k[STEPS][PADDED];
    alignas(16) f32 decay[STEPS][GATE == Gate::key ? PADDED : 1];
    f32 beta[STEPS];  // used with Beta::head alone
  };
  struct Storage {
    Raw raw[2];        // the block of steps being made ready, and the next block
    Values values[3];  // these two blocks, and the block whose steps are under way
    Ready ready[2];
  };

  // The steps belong to value_head and the tokens before `end`; begin() gets the first token. The thread
  // block holds `columns` columns of the state, from first_column on; columns from V on are not copied.
  // REQUIRES: pdl_wait() was called before, because the constructor reads a_log and dt_bias.
  __device__ __forceinline__ DeltaSteps(Storage& storage, const DeltaInputs<T, G, B>& in, i32 value_head,
                                        int end, int first_column, int columns)
      : storage_(storage),
        in_(in),
        value_head_(value_head),
        end_(end),
        first_column_(first_column),
        values_(smaller(V - first_column, columns)) {
    if (GATE_INPUT != GateInput::log_decay && in.a_log) rate_ = expf(load_one(in.a_log + value_head));
    if (GATE == Gate::head && GATE_INPUT != GateInput::log_decay && in.dt_bias)
      bias_ = load_one(in.dt_bias + value_head);
  }

  // Returns the number of steps in the block that starts at token `first`: STEPS, or fewer in the last.
  __device__ __forceinline__ int count(int first) const { return smaller(end_ - first, STEPS); }

  // One warp calls begin(), and then make() for every block of steps, in order.
  __device__ __forceinline__ void begin(int first) { fetch(first, 0); }

  // Fills ready(block) and values(block) with the steps from token `first` on.
  // Other warps may read both after a barrier, until make(block + 2) overwrites them.
  __device__ __forceinline__ void make(int first, int block) {
    const Raw& from = storage_.raw[block % 2];
    Ready& to = storage_.ready[block % 2];
    const int count = this->count(first), lane = threadIdx.x;
    copy_async_wait<0>();
    __syncwarp();
    const Vec<G, 1> g = next_g_;
    const Vec<B, 1> beta = next_beta_;
    if (first + STEPS < end_) fetch(first + STEPS, block + 1);
    widen_steps<L2NORM>(to.q, to.k, from.q, from.k,
                        in_.scale == 0.0f ? 1.0f / sqrtf(static_cast<f32>(K)) : in_.scale, count);
    if constexpr (GATE == Gate::key) {
      decay_steps<GATE_INPUT>(to.decay, from.g,
                              in_.dt_bias ? in_.dt_bias + static_cast<i64>(value_head_) * K : nullptr, rate_,
                              in_.lower_bound, count);
    }
    if (lane < count) {
      if constexpr (GATE == Gate::head)
        to.decay[lane][0] = decay_of<GATE_INPUT>(float_of(g) + bias_, rate_, in_.lower_bound);
      if constexpr (BETA == Beta::head) to.beta[lane] = beta_of<BETA_INPUT>(float_of(beta));
    }
  }

  __device__ __forceinline__ const Values& values(int block) const { return storage_.values[block % 3]; }
  __device__ __forceinline__ const Ready& ready(int block) const { return storage_.ready[block % 2]; }

 private:
  // Begins to copy the steps of `block`, which start at token `first`.
  __device__ __forceinline__ void fetch(int first, int block) {
    constexpr int V_VEC = TILE::COLUMNS % 8 == 0 ? VEC : smaller(VEC, 4);
    Raw& to = storage_.raw[block % 2];
    Values& values = storage_.values[block % 3];
    const int lane = threadIdx.x, count = this->count(first),
              head = value_head_ / (in_.value_heads / in_.heads);
    const i64 token = first, at = token * in_.value_heads + value_head_;
    copy_steps<VEC>(to.k, in_.k + token * in_.stride_k + static_cast<i64>(head) * K, in_.stride_k, count, K);
    copy_steps<VEC>(to.q, in_.q + token * in_.stride_q + static_cast<i64>(head) * K, in_.stride_q, count, K);
    copy_steps<V_VEC>(values.v,
                      in_.v + token * in_.stride_v + static_cast<i64>(value_head_) * V + first_column_,
                      in_.stride_v, count, values_);
    if constexpr (GATE == Gate::key)
      copy_steps<widest<G>(K)>(to.g, in_.g + at * K, static_cast<i64>(in_.value_heads) * K, count, K);
    if constexpr (BETA == Beta::value) {
      copy_steps<widest<B>(V | TILE::COLUMNS)>(values.beta, in_.beta + at * V + first_column_,
                                               static_cast<i64>(in_.value_heads) * V, count, values_);
    }
    copy_async_commit();
    if (lane < count) {
      if constexpr (GATE == Gate::head)
        next_g_ = load<1>(in_.g + at + static_cast<i64>(lane) * in_.value_heads);
      if constexpr (BETA == Beta::head)
        next_beta_ = load<1>(in_.beta + at + static_cast<i64>(lane) * in_.value_heads);
    }
  }

  Storage& storage_;
  const DeltaInputs<T, G, B> in_;
  const i32 value_head_;
  const int end_, first_column_, values_;
  f32 rate_ = 1.0f, bias_ = 0.0f;  // rate and bias of the gate
  // Lane i has g and beta of step i of the last block that was fetched. They are kept unconverted, because a
  // conversion to float would wait for their loads.
  Vec<G, 1> next_g_;
  Vec<B, 1> next_beta_;
};

}  // namespace kiln
