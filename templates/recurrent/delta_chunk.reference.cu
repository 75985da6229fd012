// Naive reference for delta_chunk: the delta rule in double, step by step. A block has a value head of a
// sequence, and a thread has a column of its state.
#include "kiln/dtype.cuh"
#include "recurrent/delta_steps.cuh"
#include "recurrent/state_slots.cuh"

namespace kiln {
namespace reference {

template <GateInput INPUT>
__device__ f64 log_decay(f64 g, const f32* a_log, f64 lower_bound) {
  const f64 rate = a_log ? exp(to_double(*a_log)) : 1.0;
  if (INPUT == GateInput::softplus) return -rate * log1p(exp(g));
  if (INPUT == GateInput::bounded) return lower_bound / (1.0 + exp(-rate * g));
  return g;
}

template <typename T, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT,
          bool L2NORM, typename G, typename B, typename STATE, bool V_FIRST, Slots SLOTS>
__global__ void delta_chunk(f64* out, const T* q, const T* k, const T* v, const B* beta, i32 tokens,
                            i32 sequences, i32 heads, i32 value_heads, i64 stride_q, i64 stride_k,
                            i64 stride_v, i64 stride_out, f32 scale, const G* g, const STATE* initial_state,
                            f64* final_state, const i64* cu_seqlens, const f32* a_log, const f32* dt_bias,
                            f32 lower_bound, const i32* state_indices, const u8* has_initial_state, i32 pool,
                            i64 stride_state, const i32* state_out_indices) {
  const i64 sequence = blockIdx.x / value_heads;
  if (sequence >= sequences) return;
  const int value_head = static_cast<int>(blockIdx.x % value_heads),
            head = value_head / (value_heads / heads);
  const i64 begin = cu_seqlens ? cu_seqlens[sequence] : sequence * (tokens / sequences),
            end = cu_seqlens ? cu_seqlens[sequence + 1] : begin + tokens / sequences;
  const i64 slot = SLOTS == Slots::none ? sequence : state_indices[sequence];
  const bool starts = slot >= 0 && initial_state && (!has_initial_state || has_initial_state[sequence] != 0);
  const auto state_at = [&](i64 slot, int i, int column) {
    return slot * stride_state + static_cast<i64>(value_head) * K * V +
           (V_FIRST ? column * K + i : i * V + column);
  };
  const f64 factor = scale == 0.0f ? 1.0 / sqrt(static_cast<f64>(K)) : static_cast<f64>(scale);

  for (int column = threadIdx.x; column < V; column += blockDim.x) {
    f64 state[K];
    for (int i = 0; i < K; ++i) state[i] = starts ? to_double(initial_state[state_at(slot, i, column)]) : 0.0;
    for (i64 t = begin; t < end; ++t) {
      const T* q_row = q + t * stride_q + static_cast<i64>(head) * K;
      const T* k_row = k + t * stride_k + static_cast<i64>(head) * K;
      const i64 at = t * value_heads + value_head;
      f64 q_squares = 0.0, k_squares = 0.0;
      for (int i = 0; i < K; ++i)
        q_squares += to_double(q_row[i]) * to_double(q_row[i]),
            k_squares += to_double(k_row[i]) * to_double(k_row[i]);
      const f64 q_norm = L2NORM ? 1.0 / sqrt(q_squares + 1e-6) : 1.0,
                k_norm = L2NORM ? 1.0 / sqrt(k_squares + 1e-6) : 1.0;

      for (int i = 0; GATE != Gate::none && i < K; ++i) {
        const i64 gate = GATE == Gate::key ? at * K + i : at,
                  bias = GATE == Gate::key ? value_head * K + i : value_head;
        const f64 raw = to_double(g[gate]) + (dt_bias ? to_double(dt_bias[bias]) : 0.0);
        state[i] *= exp(
            log_decay<GATE_INPUT>(raw, a_log ? a_log + value_head : a_log, static_cast<f64>(lower_bound)));
      }
      f64 u = to_double(v[t * stride_v + static_cast<i64>(value_head) * V + column]), strength = 1.0, o = 0.0;
      for (int i = 0; i < K; ++i) u -= state[i] * to_double(k_row[i]) * k_norm;
      if (BETA != Beta::none) strength = to_double(beta[at]);
      if (BETA_INPUT != BetaInput::plain)
        strength = (BETA_INPUT == BetaInput::twice_sigmoid ? 2.0 : 1.0) / (1.0 + exp(-strength));
      for (int i = 0; i < K; ++i) state[i] += to_double(k_row[i]) * k_norm * strength * u;
      for (int i = 0; i < K; ++i) o += state[i] * to_double(q_row[i]) * q_norm;
      out[t * stride_out + static_cast<i64>(value_head) * V + column] = slot < 0 ? 0.0 : o * factor;
      const bool stores = SLOTS == Slots::token && slot >= 0 && ((t + 1 - begin) % 64 == 0 || t + 1 == end);
      for (int i = 0; stores && state_out_indices[t] >= 0 && i < K; ++i)
        final_state[state_at(state_out_indices[t], i, column)] = state[i];
    }
    for (int i = 0; SLOTS != Slots::token && final_state && slot >= 0 && i < K; ++i)
      final_state[state_at(slot, i, column)] = state[i];
  }
}

}  // namespace reference
}  // namespace kiln
