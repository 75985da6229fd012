// Runs the delta rule as a recurrence over time, for prefill and decode. GATE chooses among three models:
// DeltaNet without a gate, Gated DeltaNet with a gate per head, and Kimi Delta Attention with a gate per key.
//
// The columns of a state are independent: v_j, its beta and o_j belong to column j alone. Each warp therefore
// keeps some columns of one head in its registers (StateTile), from the first step to the last. Another warp
// makes inputs ready ahead of the steps (DeltaSteps, StepMakers).
//
// A step is three passes over the columns:
// - S^T k is computed and summed over lanes.
// - The output S^T q of the previous step reads the same state, and fills the time until the sums arrive.
// - The state is updated.
//
// With one token there is one step, and the kernel streams the state. ONE says that all calls are such calls;
// delta_one() then takes the place of the steps.
//
// States are f32 in registers, and of type STATE in global memory. They are in the order of the sequences, or
// in the slots of a pool (Slots).
#include "kiln/pdl.cuh"
#include "recurrent/delta_steps.cuh"
#include "recurrent/one/delta.cuh"
#include "recurrent/state_slots.cuh"
#include "recurrent/state_tile.cuh"
#include "recurrent/step_makers.cuh"
#include "recurrent/sum_beside.cuh"

namespace kiln {

// Returns the number of warps that an SM is to hold. More warps have more bytes of states in flight (decode).
// Still more warps would leave too few registers, and the steps would spill.
template <typename TILE, int LANES, int COLS, Gate GATE>
__host__ __device__ constexpr int warps_of_an_sm() {
  // Registers of a thread for the state, k, q and the decay of each key.
  constexpr int held = TILE::ROWS * (COLS + (GATE == Gate::key ? 3 : 2));
  constexpr bool frugal = LANES <= 8 && TILE::RUN == 4 && __CUDA_ARCH__ >= 900;
  return held <= 64 && GATE != Gate::key ? 16 : held <= 96 || (held <= 128 && frugal) ? 12 : 8;
}

// REQUIRES: blockDim = (32, warps), gridDim.x = sequences * value_heads * ceil(V / columns of a block).
// 1 to WARPS warps have columns; one more makes inputs ready if there are more tokens than sequences.
// With ONE each sequence has one token, blockDim = (32, WARPS), and gridDim.x = sequences * value_heads.
template <typename T, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT,
          bool L2NORM, typename G, typename B, int VEC, int LANES, int COLS, int STEPS, int WARPS,
          typename STATE, bool V_FIRST, Slots SLOTS, bool ONE>
__global__ void __launch_bounds__(
    32 * WARPS + (ONE ? 0 : 32),
    ONE ? blocks_that_hold<K, V, STATE, V_FIRST, WARPS>()
        : blocks_of_an_sm(warps_of_an_sm<StateTile<K, V, LANES, COLS, STATE, V_FIRST>, LANES, COLS, GATE>(),
                          WARPS))
    delta_recurrent(T* out, const T* q, const T* k, const T* v, const B* beta, i32 tokens, i32 sequences,
                    i32 heads, i32 value_heads, i64 stride_q, i64 stride_k, i64 stride_v, i64 stride_out,
                    f32 scale, const G* g, const STATE* initial_state, STATE* final_state,
                    const i64* cu_seqlens, const f32* a_log, const f32* dt_bias, f32 lower_bound,
                    const i32* state_indices, const u8* has_initial_state, i32 pool, i64 stride_state,
                    const i32* state_out_indices) {
  using Tile = StateTile<K, V, LANES, COLS, STATE, V_FIRST>;
  using Steps =
      DeltaSteps<T, G, B, K, V, GATE, GATE_INPUT, BETA, BETA_INPUT, L2NORM, VEC, Tile, WARPS, STEPS>;
  constexpr int ROWS = Tile::ROWS, ROUNDS = sum_rounds<LANES>;
  const DeltaInputs<T, G, B> inputs{q,        k,        v,        beta,  g,           a_log, dt_bias,
                                    stride_q, stride_k, stride_v, heads, value_heads, scale, lower_bound};
  if constexpr (ONE) {
    delta_one<T, K, V, GATE, GATE_INPUT, BETA, BETA_INPUT, L2NORM, G, B, VEC, WARPS, STATE, V_FIRST, SLOTS>(
        out, stride_out, inputs,
        {initial_state, final_state, state_indices, has_initial_state, state_out_indices, stride_state});
    return;
  }
  __shared__ typename Steps::Storage storage;

  const StepMakers makers(tokens > sequences);
  const int columns = Tile::COLUMNS * makers.warps;  // columns of the block
  const u32 slices = (V + columns - 1) / columns, state = blockIdx.x / slices;
  const int sequence = state / value_heads, value_head = state % value_heads;
  const int first_column = blockIdx.x % slices * columns, warp_column = threadIdx.y * Tile::COLUMNS;
  const int local = warp_column + Tile::column(),
            out_column = first_column + warp_column + Tile::summed_column();
  const int column = makers.idle ? V : first_column + local;

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  const i32 slot = state_slot<SLOTS>(state_indices, sequence);
  const int begin = cu_seqlens ? static_cast<int>(cu_seqlens[sequence]) : sequence * (tokens / sequences);
  const int end = cu_seqlens ? static_cast<int>(cu_seqlens[sequence + 1]) : begin + tokens / sequences;
  Steps steps(storage, inputs, value_head, end, first_column, columns);
  if (makers.makes) steps.begin(begin);
  if constexpr (SLOTS != Slots::none) {
    if (slot < 0) {
      if (makers.makes) copy_async_wait<0>();
      zero_outputs(out + static_cast<i64>(value_head) * V, stride_out, begin, end, first_column,
                   smaller(first_column + columns, V));
      return;
    }
    if (!starts_from_state(has_initial_state, sequence)) initial_state = nullptr;
  }
  i64 state_at = SLOTS == Slots::none ? static_cast<i64>(state) * (K * V)
                                      : slot * stride_state + static_cast<i64>(value_head) * (K * V);
  Tile tile;
  tile.load_from(initial_state ? initial_state + state_at : nullptr, column);

  f32 k_row[ROWS], decay[ROWS], q_row[ROWS] = {};  // k and decay of the step to come, q of the step before
  f32 k_s[COLS] = {};                              // k^T S of the step to come, over this lane's rows
  f32 o[COLS] = {};                                // q^T S of the step two before, over this lane's rows
  // Reads the four rows from `row` on, and adds to k_s.
  const auto begin_step = [&](const typename Steps::Ready& ready, int step, int row) {
    Tile::read_four(ready.k[step], row, k_row + row);
    if constexpr (GATE == Gate::key) Tile::read_four(ready.decay[step], row, decay + row);
#pragma unroll
    for (int i = row; i < row + 4; ++i) {
      const f32 factor = GATE == Gate::key ? decay[i] * k_row[i] : k_row[i];
      for (int c = 0; c < COLS; ++c) k_s[c] = fmaf(tile.s[i][c], factor, k_s[c]);
    }
  };
  const auto add_output = [&](f32(&to)[COLS], int from, int up_to) {
#pragma unroll
    for (int i = from; i < up_to; ++i) {
      for (int c = 0; c < COLS; ++c) to[c] = fmaf(tile.s[i][c], q_row[i], to[c]);
    }
  };
  const bool writes = Tile::owns_sum() && out_column < V;
  // An output is stored two steps after its own step, so out_at starts two tokens before the first one.
  T* out_at =
      out + (static_cast<i64>(begin) - 2) * stride_out + static_cast<i64>(value_head) * V + out_column;
  const auto write_output = [&](f32 sum, bool exists) {
    if (exists && writes) store(out_at, narrow<T>({sum}));
    out_at += stride_out;
  };

  int block = 0;
  i32 out_slots = -1, next_out_slots = -1;  // of the steps of this block and of the next
  if constexpr (SLOTS == Slots::token) next_out_slots = load_out_slots(state_out_indices, begin, end, STEPS);
#pragma unroll 1
  for (int first = begin; first < end; first += STEPS, ++block) {
    if (makers.makes) steps.make(first, block);
    __syncthreads();
    if (makers.idle) continue;
    if (first + STEPS >= end) pdl_launch_dependents();
    if constexpr (SLOTS == Slots::token) {
      out_slots = next_out_slots;
      next_out_slots = load_out_slots(state_out_indices, first + STEPS, end, STEPS);
    }
    const typename Steps::Ready& ready = steps.ready(block);
    const typename Steps::Values& values = steps.values(block);
    const int count = steps.count(first);
    for (int c = 0; c < COLS; ++c) k_s[c] = 0.0f;
#pragma unroll
    for (int row = 0; row < ROWS; row += 4) begin_step(ready, 0, row);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      f32 next_o[COLS] = {}, u[COLS], strength[COLS];
      const f32 head_decay = GATE == Gate::head ? ready.decay[step][0] : 1.0f;
      widen(load_shared<COLS>(&values.v[step][local]), u);
      const f32 head_beta = BETA == Beta::head ? ready.beta[step] : 1.0f;
      if constexpr (BETA == Beta::value) widen(load_shared<COLS>(&values.beta[step][local]), strength);
      sum_beside<Tile>(
          k_s, o, [&](int round) { add_output(next_o, ROWS * round / ROUNDS, ROWS * (round + 1) / ROUNDS); });
      write_output(o[0], first + step > begin + 1);

      for (int c = 0; c < COLS; ++c) {
        u[c] -= head_decay * k_s[c];
        if constexpr (BETA == Beta::head) u[c] *= head_beta;
        if constexpr (BETA == Beta::value) u[c] *= beta_of<BETA_INPUT>(strength[c]);
        k_s[c] = 0.0f;
        o[c] = next_o[c];
      }
#pragma unroll
      for (int row = 0; row < ROWS; row += 4) {
#pragma unroll
        for (int i = row; i < row + 4; ++i) {
          const f32 kept = GATE == Gate::key ? decay[i] : head_decay;
          for (int c = 0; c < COLS; ++c) tile.s[i][c] = fmaf(k_row[i], u[c], kept * tile.s[i][c]);
        }
        begin_step(ready, (step + 1) % STEPS, row);  // its results are unused after the block's last step
      }
      Tile::read(ready.q[step], q_row);
      if constexpr (SLOTS == Slots::token) {
        const i32 to = out_slot(out_slots, step);
        if (to >= 0)
          tile.store_to(final_state + to * stride_state + static_cast<i64>(value_head) * (K * V), column);
      }
    }
  }

  // The slot is read again, so that no register holds it during the steps.
  if constexpr (SLOTS == Slots::sequence) {
    if (final_state) {
      state_at =
          state_slot<SLOTS>(state_indices, sequence) * stride_state + static_cast<i64>(value_head) * (K * V);
    }
  }
  if (end > begin && !makers.idle) {  // the outputs of the last two steps
    f32 last[COLS] = {};
    add_output(last, 0, ROWS);
    write_output(Tile::sum_of_one(o), end > begin + 1);
    write_output(Tile::sum_of_one(last), true);
  }
  if (SLOTS != Slots::token && final_state) tile.store_to(final_state + state_at, column);
}

}  // namespace kiln
