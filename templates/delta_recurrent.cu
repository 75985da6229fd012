// The delta rule as a recurrence over time (DeltaNet; gated: Gated DeltaNet; a gate per key: Kimi Delta Attention), for prefill and decode.
//
// Columns of the state do not know of each other: v_j, its beta and o_j belong to column j alone. So each warp has 4 * VALUE_LANES columns of
// one head, from the first step to the last, in its registers: a lane has four of them in ROWS rows, and KEY_LANES neighbouring lanes share the
// four. A step is three passes over these registers: S^T k, summed over the lanes; the output S^T q of the step *before*, which reads the same
// state and fills the time that the sums take to come; and the update. One token is the same with one step: a stream of the state.
#include "kiln/columns.cuh"
#include "kiln/delta_steps.cuh"
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"

namespace kiln {

// What the registers must suffice for: 16 warps have 128 each. The more there are, the more bytes of states are in flight (decode), and with
// fewer registers than these the steps spill.
__host__ __device__ constexpr int warps_of_an_sm(int K, int VALUE_LANES, Gate GATE) {
  return K * VALUE_LANES > 512 || (K > 128 && GATE == Gate::key) ? 8 : K > 128 || K % 32 != 0 || GATE == Gate::key ? 12 : 16;
}

template <typename T, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT, bool L2NORM, typename G, typename B, int VEC, int VALUE_LANES, int WARPS, int STEPS>
__global__ void __launch_bounds__(32 * WARPS, warps_of_an_sm(K, VALUE_LANES, GATE) / WARPS)
    delta_recurrent(T* out, const T* q, const T* k, const T* v, const B* beta, i32 tokens, i32 sequences, i32 heads, i32 value_heads, i64 stride_q, i64 stride_k, i64 stride_v,
                    i64 stride_out, f32 scale, const G* g, const f32* initial_state, f32* final_state, const i64* cu_seqlens, const f32* a_log, const f32* dt_bias, f32 lower_bound) {
  constexpr int THREADS = 32 * WARPS;
  constexpr int KEY_LANES = 32 / VALUE_LANES;
  constexpr int PADDED = static_cast<int>(ceil_div(K, 4 * KEY_LANES)) * 4 * KEY_LANES;
  constexpr int ROWS = PADDED / KEY_LANES;
  constexpr int COLUMNS = 4 * VALUE_LANES * WARPS;
  constexpr int BLOCKS = static_cast<int>(ceil_div(V, COLUMNS));  // of a head
  __shared__ RawSteps<T, G, B, K, COLUMNS, STEPS, GATE, BETA> raw[2];
  __shared__ ReadySteps<PADDED, STEPS, GATE> ready;

  const int thread = threadIdx.x, key_lane = thread % KEY_LANES;
  const int first_column = static_cast<int>(blockIdx.x % BLOCKS) * COLUMNS;
  const int local = thread / KEY_LANES * 4;  // of this thread's four columns, in the block's
  const int column = first_column + local;
  const int state_index = static_cast<int>(blockIdx.x / BLOCKS);  // sequence * value_heads + value_head
  const int sequence = state_index / value_heads, value_head = state_index % value_heads;
  const int head = value_head / (value_heads / heads);
  const auto row = [&](int i) { return (i / 4 * KEY_LANES + key_lane) * 4 + i % 4; };
  const auto mine = [&](int i) { return (PADDED == K || row(i) < K) && (V % COLUMNS == 0 || column < V); };

  pdl_wait();
  f32 state[ROWS][4] = {};
  const i64 state_at = static_cast<i64>(state_index) * (K * V) + column;
  if (initial_state) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if (mine(i)) widen(load<4>(initial_state + state_at + row(i) * V), state[i]);
    }
  }
  const int begin = cu_seqlens ? static_cast<int>(cu_seqlens[sequence]) : sequence * (tokens / sequences);
  const int end = cu_seqlens ? static_cast<int>(cu_seqlens[sequence + 1]) : begin + tokens / sequences;
  const f32 rate = GATE_INPUT != GateInput::log_decay && a_log ? expf(load_one(a_log + value_head)) : 1.0f;
  const f32 head_bias = GATE == Gate::head && GATE_INPUT != GateInput::log_decay && dt_bias ? load_one(dt_bias + value_head) : 0.0f;
  const f32 q_scale = scale == 0.0f ? 1.0f / sqrtf(static_cast<f32>(K)) : scale;

  f32 next_g = 0.0f, next_beta = 0.0f;  // thread i's are of step i of the block of steps that is under way
  const auto begin_copy = [&](i64 first, int buffer) {
    auto& to = raw[buffer];
    const int count = smaller(end - static_cast<int>(first), STEPS), values = V - first_column;
    const i64 at = first * value_heads + value_head;  // in what is [tokens, value_heads, ...]
    copy_steps<THREADS, VEC>(to.k, k + first * stride_k + static_cast<i64>(head) * K, stride_k, count, K, thread);
    copy_steps<THREADS, VEC>(to.q, q + first * stride_q + static_cast<i64>(head) * K, stride_q, count, K, thread);
    copy_steps<THREADS, VEC>(to.v, v + first * stride_v + static_cast<i64>(value_head) * V + first_column, stride_v, count, values, thread);
    if constexpr (GATE == Gate::key) copy_steps<THREADS, widest<G>(K)>(to.g, g + at * K, static_cast<i64>(value_heads) * K, count, K, thread);
    if constexpr (BETA == Beta::value) copy_steps<THREADS, widest<B>(V)>(to.beta, beta + at * V + first_column, static_cast<i64>(value_heads) * V, count, values, thread);
    if (thread < count) {
      if constexpr (GATE == Gate::head) next_g = load_float(g + at + static_cast<i64>(thread) * value_heads);
      if constexpr (BETA == Beta::head) next_beta = load_float(beta + at + static_cast<i64>(thread) * value_heads);
    }
  };
  const auto make_ready = [&](int buffer, int count) {
    widen_steps<THREADS, L2NORM>(ready.q, ready.k, raw[buffer].q, raw[buffer].k, q_scale, count, thread);
    if constexpr (GATE == Gate::key) {
      decay_steps<THREADS, GATE_INPUT>(ready.decay, raw[buffer].g, dt_bias ? dt_bias + static_cast<i64>(value_head) * K : nullptr, rate, lower_bound, count, thread);
    }
    if (thread < count) {
      if constexpr (GATE == Gate::head) ready.decay[thread][0] = decay_of<GATE_INPUT>(next_g + head_bias, rate, lower_bound);
      if constexpr (BETA == Beta::head) ready.beta[thread] = beta_of<BETA_INPUT>(next_beta);
    }
  };
  const auto read_row = [&](const f32(&from)[PADDED], f32(&to)[ROWS]) {
#pragma unroll
    for (int i = 0; i < ROWS; i += 4) {
      const float4 w = *reinterpret_cast<const float4*>(&from[row(i)]);
      to[i] = w.x, to[i + 1] = w.y, to[i + 2] = w.z, to[i + 3] = w.w;
    }
  };

  f32 k_row[ROWS], decay[ROWS], q_row[ROWS] = {};  // k and decay of the step, q of the one before
  const int own = own_column<KEY_LANES>(key_lane);
  const bool writes = key_lane % (KEY_LANES / 4) == 0 && column + own < V;
  T* out_at = out + (static_cast<i64>(begin) - 2) * stride_out + static_cast<i64>(value_head) * V + column + own;
  const auto add_output = [&](f32(&o)[4], int first, int last) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      for (int c = 0; i >= first && i < last && c < 4; ++c) o[c] = fmaf(state[i][c], q_row[i], o[c]);
    }
  };
  const auto write_output = [&](const f32(&sums)[4], bool exists) {
    const f32 sum[1] = {sums[0]};
    if (exists && writes) store(out_at, narrow<T>(sum));
    out_at += stride_out;
  };

  f32 o[4] = {};  // this lane's part of the output of the step before the step before
  begin_copy(begin, 0);
  pdl_launch_dependents();
  int buffer = 0;
#pragma unroll 1
  for (int first = begin; first < end; first += STEPS, buffer ^= 1) {
    const int count = smaller(end - first, STEPS);
    async_copy_wait();
    __syncthreads();  // the copies of all threads are there, and all have done the steps of the block before
    make_ready(buffer, count);
    if (first + STEPS < end) begin_copy(first + STEPS, buffer ^ 1);
    __syncthreads();
    read_row(ready.k[0], k_row);
    if constexpr (GATE == Gate::key) read_row(ready.decay[0], decay);
#pragma unroll 1
    for (int s = 0; s < count; ++s) {
      f32 p[4] = {}, next_o[4] = {}, u[4], strength[4];
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const f32 factor = GATE == Gate::key ? decay[i] * k_row[i] : k_row[i];
        for (int c = 0; c < 4; ++c) p[c] = fmaf(state[i][c], factor, p[c]);
      }
      constexpr int ROUNDS = sum_rounds<KEY_LANES>;
      sum_columns<KEY_LANES>(p, o, key_lane, [&](int round) { add_output(next_o, ROWS * round / ROUNDS, ROWS * (round + 1) / ROUNDS); });
      write_output(o, first + s > begin + 1);
      for (int c = 0; c < 4; ++c) o[c] = next_o[c];
      read_row(ready.q[s], q_row);

      const f32 head_decay = GATE == Gate::head ? ready.decay[s][0] : 1.0f;
      widen(load_shared<4>(&raw[buffer].v[s][local]), u);
      if constexpr (BETA == Beta::value) widen(load_shared<4>(&raw[buffer].beta[s][local]), strength);
      for (int c = 0; c < 4; ++c) {
        u[c] -= head_decay * p[c];
        if constexpr (BETA == Beta::head) u[c] *= ready.beta[s];
        if constexpr (BETA == Beta::value) u[c] *= beta_of<BETA_INPUT>(strength[c]);
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const f32 kept = GATE == Gate::key ? decay[i] : head_decay;
        for (int c = 0; c < 4; ++c) state[i][c] = fmaf(k_row[i], u[c], kept * state[i][c]);
      }
      read_row(ready.k[(s + 1) % STEPS], k_row);
      if constexpr (GATE == Gate::key) read_row(ready.decay[(s + 1) % STEPS], decay);
    }
  }
  if (end > begin) {
    f32 last[4] = {}, none[4] = {};
    add_output(last, 0, ROWS);
    sum_columns<KEY_LANES>(none, o, key_lane, [](int) {});
    write_output(o, end > begin + 1);
    sum_columns<KEY_LANES>(none, last, key_lane, [](int) {});
    write_output(last, true);
  }
  if (final_state) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if (mine(i)) store(final_state + state_at + row(i) * V, narrow<f32>(state[i]));
    }
  }
}

}  // namespace kiln
