// The delta rule as a recurrence over time (DeltaNet; gated: Gated DeltaNet; a gate per key: Kimi Delta Attention), for prefill and decode.
//
// Columns of a state do not know of each other: v_j, its beta and o_j belong to column j alone. So each warp keeps some columns of one head in its
// registers (StateTile), from the first step to the last. A step is three passes over them: S^T k, summed over lanes; the output S^T q of the step
// *before*, which reads the same state and takes the time until the sums arrive; and the update. Inputs are copied a block of steps ahead and made
// ready once for a block of threads. One token is the same with one step: a stream of the state.
#include "kiln/delta_steps.cuh"
#include "kiln/pdl.cuh"
#include "kiln/state_tile.cuh"
#include "kiln/sum_beside.cuh"

namespace kiln {

// What the registers must suffice for, 16 warps having 128 each. The more there are, the more bytes of states are in flight (decode); with fewer
// registers than these the steps spill, and sm_80's compiler needs more than its successors'.
__host__ __device__ constexpr int warps_of_an_sm(int rows, int cols, int lanes, bool padded, Gate GATE) {
  const int held = rows * (cols + (GATE == Gate::key ? 3 : 2));  // by a thread: its part of the state, and of k, q and the decay
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  padded = true;
#endif
  return held > 128 ? 8 : held <= 64 ? 16 : GATE == Gate::key && lanes > 8 ? 8 : GATE != Gate::none || padded || lanes > 8 ? 12 : 16;
}

// REQUIRES: blockDim = (32, 1 to WARPS), gridDim.x = sequences * value_heads * ceil(V / columns of a block).
template <typename T, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT, bool L2NORM, typename G, typename B, int VEC, int LANES, int COLS, int STEPS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, warps_of_an_sm(StateTile<K, V, LANES, COLS>::ROWS, COLS, LANES, K % (4 * LANES) != 0, GATE) / WARPS)
    delta_recurrent(T* out, const T* q, const T* k, const T* v, const B* beta, i32 tokens, i32 sequences, i32 heads, i32 value_heads, i64 stride_q, i64 stride_k, i64 stride_v,
                    i64 stride_out, f32 scale, const G* g, const f32* initial_state, f32* final_state, const i64* cu_seqlens, const f32* a_log, const f32* dt_bias, f32 lower_bound) {
  using Tile = StateTile<K, V, LANES, COLS>;
  constexpr int ROWS = Tile::ROWS, PADDED = Tile::PADDED, ROUNDS = sum_rounds<LANES>;
  constexpr int V_VEC = Tile::COLUMNS % 8 == 0 ? VEC : smaller(VEC, 4);
  __shared__ RawSteps<T, G, B, K, Tile::COLUMNS * WARPS, STEPS, GATE, BETA> raw[2];
  __shared__ ReadySteps<PADDED, STEPS, GATE> ready;

  const int columns = Tile::COLUMNS * blockDim.y;  // of a block
  const u32 slices = (V + columns - 1) / columns, state_index = blockIdx.x / slices;  // state: sequence * value_heads + value_head
  const int sequence = state_index / value_heads, value_head = state_index % value_heads, head = value_head / (value_heads / heads);
  const int first_column = blockIdx.x % slices * columns, warp_column = threadIdx.y * Tile::COLUMNS;
  const int local = warp_column + Tile::column(), out_column = first_column + warp_column + Tile::summed_column();
  const i64 state_at = static_cast<i64>(state_index) * (K * V);
  const Team team{static_cast<int>(threadIdx.y * 32 + threadIdx.x), static_cast<int>(blockDim.y * 32)};

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  Tile tile;
  tile.load_from(initial_state ? initial_state + state_at : nullptr, first_column + local);
  const int begin = cu_seqlens ? static_cast<int>(cu_seqlens[sequence]) : sequence * (tokens / sequences);
  const int end = cu_seqlens ? static_cast<int>(cu_seqlens[sequence + 1]) : begin + tokens / sequences;
  const f32 rate = GATE_INPUT != GateInput::log_decay && a_log ? expf(load_one(a_log + value_head)) : 1.0f;
  const f32 head_bias = GATE == Gate::head && GATE_INPUT != GateInput::log_decay && dt_bias ? load_one(dt_bias + value_head) : 0.0f;
  const f32 q_scale = scale == 0.0f ? 1.0f / sqrtf(static_cast<f32>(K)) : scale;

  f32 next_g = 0.0f, next_beta = 0.0f;  // thread i's are of step i of the block of steps that is under way
  const auto begin_copy = [&](i64 first, int buffer) {
    auto& to = raw[buffer];
    const int count = smaller(end - static_cast<int>(first), STEPS), values = smaller(V - first_column, columns);
    const i64 at = first * value_heads + value_head;  // in what is [tokens, value_heads, ...]
    copy_steps<VEC>(to.k, k + first * stride_k + static_cast<i64>(head) * K, stride_k, count, K, team);
    copy_steps<VEC>(to.q, q + first * stride_q + static_cast<i64>(head) * K, stride_q, count, K, team);
    copy_steps<V_VEC>(to.v, v + first * stride_v + static_cast<i64>(value_head) * V + first_column, stride_v, count, values, team);
    if constexpr (GATE == Gate::key) copy_steps<widest<G>(K)>(to.g, g + at * K, static_cast<i64>(value_heads) * K, count, K, team);
    if constexpr (BETA == Beta::value) {
      copy_steps<widest<B>(V | Tile::COLUMNS)>(to.beta, beta + at * V + first_column, static_cast<i64>(value_heads) * V, count, values, team);
    }
    copy_async_commit();
    if (team.thread < count) {
      if constexpr (GATE == Gate::head) next_g = load_float(g + at + static_cast<i64>(team.thread) * value_heads);
      if constexpr (BETA == Beta::head) next_beta = load_float(beta + at + static_cast<i64>(team.thread) * value_heads);
    }
  };
  const auto make_ready = [&](int buffer, int count) {
    const auto& from = raw[buffer];
    widen_steps<L2NORM>(ready.q, ready.k, from.q, from.k, q_scale, count, team);
    if constexpr (GATE == Gate::key) {
      decay_steps<GATE_INPUT>(ready.decay, from.g, dt_bias ? dt_bias + static_cast<i64>(value_head) * K : nullptr, rate, lower_bound, count, team);
    }
    if (team.thread < count) {
      if constexpr (GATE == Gate::head) ready.decay[team.thread][0] = decay_of<GATE_INPUT>(next_g + head_bias, rate, lower_bound);
      if constexpr (BETA == Beta::head) ready.beta[team.thread] = beta_of<BETA_INPUT>(next_beta);
    }
  };

  f32 k_row[ROWS], decay[ROWS], q_row[ROWS] = {};  // k and decay of the step, q of the one before
  f32 o[COLS] = {};                                // over this lane's rows, of the step before that
  const bool writes = Tile::owns_sum() && out_column < V;
  T* out_at = out + (static_cast<i64>(begin) - 2) * stride_out + static_cast<i64>(value_head) * V + out_column;
  const auto add_output = [&](f32(&to)[COLS], int from_row, int to_row) {
#pragma unroll
    for (int i = from_row; i < to_row; ++i) {
      for (int c = 0; c < COLS; ++c) to[c] = fmaf(tile.s[i][c], q_row[i], to[c]);
    }
  };
  const auto write_output = [&](const f32(&sums)[COLS], bool exists) {
    const f32 sum[1] = {sums[0]};
    if (exists && writes) store(out_at, narrow<T>(sum));
    out_at += stride_out;
  };

  begin_copy(begin, 0);
  int buffer = 0;
#pragma unroll 1
  for (int first = begin; first < end; first += STEPS, buffer ^= 1) {
    const int count = smaller(end - first, STEPS);
    copy_async_wait<0>();
    __syncthreads();  // the copies of all threads are there, and all have done the steps of the block before
    make_ready(buffer, count);
    if (first + STEPS < end) {
      begin_copy(first + STEPS, buffer ^ 1);
    } else {
      pdl_launch_dependents();
    }
    __syncthreads();
    f32 p[COLS] = {};  // k^T S of the step to come, over this lane's rows
    const auto prepare_rows = [&](int step, int i) {  // four rows from i on
      const auto four = [&](const f32* shared, f32* to) {
        const float4 v = *reinterpret_cast<const float4*>(shared + Tile::row(i));
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
      };
      four(ready.k[step], k_row + i);
      if constexpr (GATE == Gate::key) four(ready.decay[step], decay + i);
#pragma unroll
      for (int j = i; j < i + 4; ++j) {
        const f32 factor = GATE == Gate::key ? decay[j] * k_row[j] : k_row[j];
        for (int c = 0; c < COLS; ++c) p[c] = fmaf(tile.s[j][c], factor, p[c]);
      }
    };
#pragma unroll
    for (int i = 0; i < ROWS; i += 4) prepare_rows(0, i);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      f32 next_o[COLS] = {}, u[COLS], strength[COLS];
      sum_beside<Tile>(p, o, [&](int round) { add_output(next_o, ROWS * round / ROUNDS, ROWS * (round + 1) / ROUNDS); });
      write_output(o, first + step > begin + 1);
      for (int c = 0; c < COLS; ++c) o[c] = next_o[c];

      const f32 head_decay = GATE == Gate::head ? ready.decay[step][0] : 1.0f;
      widen(load_shared<COLS>(&raw[buffer].v[step][local]), u);
      if constexpr (BETA == Beta::value) widen(load_shared<COLS>(&raw[buffer].beta[step][local]), strength);
      for (int c = 0; c < COLS; ++c) {
        u[c] -= head_decay * p[c];
        if constexpr (BETA == Beta::head) u[c] *= ready.beta[step];
        if constexpr (BETA == Beta::value) u[c] *= beta_of<BETA_INPUT>(strength[c]);
        p[c] = 0.0f;
      }
#pragma unroll
      for (int i = 0; i < ROWS; i += 4) {
#pragma unroll
        for (int j = i; j < i + 4; ++j) {
          const f32 kept = GATE == Gate::key ? decay[j] : head_decay;
          for (int c = 0; c < COLS; ++c) tile.s[j][c] = fmaf(k_row[j], u[c], kept * tile.s[j][c]);
        }
        prepare_rows((step + 1) % STEPS, i);  // behind the last one in vain
      }
      Tile::read(ready.q[step], q_row);
    }
  }

  if (end > begin) {  // the outputs of the last two steps
    f32 last[COLS] = {};
    add_output(last, 0, ROWS);
    o[0] = Tile::sum_of_one(o);
    write_output(o, end > begin + 1);
    last[0] = Tile::sum_of_one(last);
    write_output(last, true);
  }
  if (final_state) tile.store_to(final_state + state_at, first_column + local);
}

}  // namespace kiln
