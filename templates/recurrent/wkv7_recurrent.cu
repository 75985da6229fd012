// Runs RWKV7's recurrence over the tokens of each sequence, for each head's K x V state S: S = diag(exp w) S
// + b (a^T S) + k v^T, then o = scale * S^T r.
//
// A step needs the state of the step before it, so speed depends on the work that runs beside the step:
// - Each warp keeps some columns of the state in registers (StateTile).
// - Few sequences are spread over more and smaller blocks (blockDim.y).
// - Another warp makes inputs ready ahead of the steps (Wkv7Steps, StepMakers).
//
// A step is two passes over the state:
// - The first pass applies the decay and adds k v^T, while lanes sum a^T S and the o of the previous step.
// - The second pass adds b (a^T S), and begins r^T S and the next step's a^T S.
//
// ONE says that all calls have one token of each sequence. wkv7_one() then takes the place of the steps.
//
// States are f32 in registers, and of type STATE in global memory. They are in the order of the sequences, or
// in the slots of a pool (Slots).
#include "kiln/pdl.cuh"
#include "recurrent/one/wkv7.cuh"
#include "recurrent/state_slots.cuh"
#include "recurrent/state_tile.cuh"
#include "recurrent/step_makers.cuh"
#include "recurrent/sum_beside.cuh"
#include "recurrent/wkv7_steps.cuh"

namespace kiln {

// Returns the number of warps that an SM is to hold. More warps have more bytes of states in flight (decode).
// Still more warps would leave too few registers, and the steps would spill.
template <typename TILE, int K, int LANES, int COLS, Slots SLOTS>
__host__ __device__ constexpr int warps_of_an_sm() {
  constexpr int held = TILE::ROWS * (COLS + 2);  // registers of a thread for the state and two vectors over K
  // A step takes more registers with more than 8 lanes, and below sm_90. From sm_100 on it also takes more if
  // the state has rows that pad K.
  // Stores of the state between the steps (Slots::token) take registers, too.
  constexpr bool token = SLOTS == Slots::token;
  constexpr bool frugal =
      LANES <= 8 && (__CUDA_ARCH__ >= 1000 || token ? TILE::PADDED == K : true) && __CUDA_ARCH__ >= 900;
  constexpr int at_16 = !token ? 96 : __CUDA_ARCH__ >= 900 ? 64 : 48;
  return held <= smaller(at_16, 64) || (frugal && held <= at_16) ? 16 : frugal && held <= 128 ? 12 : 8;
}

// REQUIRES: blockDim = (32, warps), gridDim.x = sequences * heads * ceil(V / columns of a block). 1 to WARPS
// warps have columns. One more warp makes inputs ready if there are more tokens than sequences. Only
// Wkv7Form::a_b reads b, and only kk_a reads kk; the array that is not read may be null.
// With ONE each sequence has one token, blockDim = (32, WARPS), and gridDim.x = sequences * heads.
template <typename T, int K, int V, Wkv7Form FORM, typename W, bool VARLEN, int LANES, int COLS, int STEPS,
          int WARPS, typename STATE, bool V_FIRST, Slots SLOTS, bool ONE>
__global__ void __launch_bounds__(
    32 * WARPS + (ONE ? 0 : 32),
    ONE ? blocks_that_hold<K, V, STATE, V_FIRST, WARPS>()
        : blocks_of_an_sm(
              warps_of_an_sm<StateTile<K, V, LANES, COLS, STATE, V_FIRST>, K, LANES, COLS, SLOTS>(), WARPS))
    wkv7_recurrent(T* o, const T* r, const W* w, const T* k, const T* v, const T* a, i32 sequences,
                   i64 length, i32 heads, const T* b, const T* kk, f32 scale, const STATE* initial_state,
                   STATE* final_state, const i64* cu_seqlens, const i32* state_indices,
                   const u8* has_initial_state, i32 pool, i64 stride_state, const i32* state_out_indices) {
  using Tile = StateTile<K, V, LANES, COLS, STATE, V_FIRST>;
  using Steps = Wkv7Steps<T, W, K, V, FORM, Tile, Tile::COLUMNS * WARPS, STEPS>;
  constexpr int ROWS = Tile::ROWS, ROUNDS = sum_rounds<LANES>;
  const Wkv7Inputs<T, W> inputs{r, k, FORM == Wkv7Form::kk_a ? kk : a, FORM == Wkv7Form::kk_a ? a : b, w, v};
  if constexpr (ONE) {
    wkv7_one<T, K, V, FORM, W, WARPS, STATE, V_FIRST, SLOTS>(
        o, inputs, scale, heads,
        {initial_state, final_state, state_indices, has_initial_state, state_out_indices, stride_state});
    return;
  }
  __shared__ typename Steps::Storage storage;

  const StepMakers makers(length > (VARLEN ? sequences : 1));
  const int columns = Tile::COLUMNS * makers.warps;  // columns of the block
  const u32 slices = (V + columns - 1) / columns, state = blockIdx.x / slices;
  const i32 n = state / heads, head = state % heads;
  const int first_column = blockIdx.x % slices * columns,
            local = threadIdx.y * Tile::COLUMNS + Tile::column();
  const int column = makers.idle ? V : first_column + local,
            o_column = first_column + threadIdx.y * Tile::COLUMNS + Tile::summed_column();
  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  const i32 slot = state_slot<SLOTS>(state_indices, n);
  const Sequence span = sequence<VARLEN>(cu_seqlens, n, length);
  Steps steps(storage, inputs, scale, span, heads, head, first_column, columns);
  if (makers.makes) steps.begin();
  if constexpr (SLOTS != Slots::none) {
    if (slot < 0) {
      if (makers.makes) copy_async_wait<0>();
      zero_outputs(o + static_cast<i64>(head) * V, static_cast<i64>(heads) * V, span.begin, span.end,
                   first_column, smaller(first_column + columns, V));
      return;
    }
    if (!starts_from_state(has_initial_state, n)) initial_state = nullptr;
  }
  const i64 state_at = SLOTS == Slots::none ? static_cast<i64>(state) * (K * V)
                                            : slot * stride_state + static_cast<i64>(head) * (K * V);
  Tile s;
  s.load_from(initial_state ? initial_state + state_at : nullptr, column);

  const i64 o_step = static_cast<i64>(heads) * V;
  T* o_next = o + (span.begin * heads + head) * V + o_column - o_step;
  f32 w_row[ROWS], k_row[ROWS], v_row[COLS];  // inputs of the step to come
  f32 a_s[COLS];                              // a^T S of the step to come, over this lane's rows
  f32 o_part[COLS] = {};                      // r^T S of the step before, over this lane's rows
  i32 out_slots = -1, next_out_slots = -1;    // of the steps of this chunk and of the next
  if constexpr (SLOTS == Slots::token)
    next_out_slots = load_out_slots(state_out_indices, span.begin, span.end, STEPS);
  bool stores = false;  // this lane has an o of the previous step to store
#pragma unroll 1
  for (int chunk = 0; chunk < steps.chunks(); ++chunk) {
    if (makers.makes) steps.make(chunk);
    __syncthreads();
    if (makers.idle) continue;
    if (chunk == steps.chunks() - 1) pdl_launch_dependents();
    if constexpr (SLOTS == Slots::token) {
      out_slots = next_out_slots;
      next_out_slots = load_out_slots(state_out_indices, span.begin + static_cast<i64>(chunk + 1) * STEPS,
                                      span.end, STEPS);
    }
    const typename Steps::Step* ready = steps.ready(chunk);
    const int count = steps.count(chunk);
    const auto begin_step = [&](int step) {
      Tile::read(ready[step].w, w_row);
      Tile::read(ready[step].k(), k_row);
      widen(load_shared<COLS>(ready[step].v + local), v_row);
    };
    f32 a_row[ROWS];
    Tile::read(ready[0].a(), a_row);
    s.dot(a_row, a_s);
    begin_step(0);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      sum_beside<Tile>(a_s, o_part, [&](int round) {
#pragma unroll
        for (int i = ROWS * round / ROUNDS; i < ROWS * (round + 1) / ROUNDS; ++i) {
          for (int c = 0; c < COLS; ++c) s.s[i][c] = fmaf(w_row[i], s.s[i][c], k_row[i] * v_row[c]);
        }
      });
      if (stores) store(o_next, narrow<T>({o_part[0]}));
      o_next += o_step;
      stores = Tile::owns_sum() && o_column < V;

      const int next = (step + 1) % STEPS;  // its inputs are unused after the chunk's last step
      f32 next_a_s[COLS] = {};
      for (int c = 0; c < COLS; ++c) o_part[c] = 0.0f;
#pragma unroll
      for (int row = 0; row < ROWS; row += 4) {
        f32 b_row[4], r_row[4], a_row[4];
        Tile::read_four(ready[step].b(), row, b_row);
        Tile::read_four(ready[step].r(), row, r_row);
        Tile::read_four(ready[next].a(), row, a_row);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          for (int c = 0; c < COLS; ++c) {
            const f32 x = s.s[row + i][c] = fmaf(b_row[i], a_s[c], s.s[row + i][c]);
            o_part[c] = fmaf(r_row[i], x, o_part[c]);
            next_a_s[c] = fmaf(a_row[i], x, next_a_s[c]);
          }
        }
      }
      for (int c = 0; c < COLS; ++c) a_s[c] = next_a_s[c];
      begin_step(next);
      if constexpr (SLOTS == Slots::token) {
        const i32 to = out_slot(out_slots, step);
        if (to >= 0) s.store_to(final_state + to * stride_state + static_cast<i64>(head) * (K * V), column);
      }
    }
  }
  const f32 last = Tile::sum_of_one(o_part);
  if (stores) store(o_next, narrow<T>({last}));
  if (SLOTS != Slots::token && final_state) s.store_to(final_state + state_at, column);
}

}  // namespace kiln
