// Computes the delta rule for prompts: outputs and states as delta_recurrent has them, in chunks of 16 tokens whose work is matrix
// products. It runs on sm_80 and later; delta_chunk is for Hopper.
//
// An item is COLUMNS columns of the state of one value head, and the tokens of its sequence. A block takes an item after the other.
// Its warps work on different chunks, and items, at the same time:
// - COLUMNS / 16 warps hold the columns of the state, and take them from chunk to chunk (DeltaMmaWalk).
// - Each of the other warps loads and prepares every PREPARERS-th chunk (DeltaMmaPreparation); this does not depend on the
//   state.
#include "delta_mma/prepare.cuh"
#include "delta_mma/walk.cuh"
#include "kiln/pdl.cuh"
#include "recurrent/state_slots.cuh"

namespace kiln {

// REQUIRES: blockDim.x = 2 * COLUMNS + 32 * PREPARERS.
template <typename T, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT,
          bool L2NORM, typename G, typename B, typename STATE, bool V_FIRST, Slots SLOTS, int PREPARERS,
          int COLUMNS>
__global__ void __launch_bounds__(2 * COLUMNS + 32 * PREPARERS, 1)
    delta_chunk_mma(T* out, const T* q, const T* k, const T* v, const B* beta, i32 tokens, i32 sequences,
                    i32 heads, i32 value_heads, i64 stride_q, i64 stride_k, i64 stride_v, i64 stride_out,
                    f32 scale, const G* g, const STATE* initial_state, STATE* final_state,
                    const i64* cu_seqlens, const f32* a_log, const f32* dt_bias, f32 lower_bound,
                    const i32* state_indices, const u8* has_initial_state, i64 stride_state,
                    const i32* state_out_indices) {
  constexpr bool POOL = SLOTS != Slots::none, KEYS = GATE == Gate::key;
  constexpr int SLICES = V / COLUMNS, WALKERS = COLUMNS / 16,
                CHECKPOINT = 64;  // tokens from a stored state to the next
  using Shared = DeltaMmaShared<T, K, KEYS, COLUMNS, PREPARERS>;
  extern __shared__ __align__(1024) u8 bytes[];
  constexpr int STAGES = Shared::STAGES;
  static_assert(sizeof(Shared) <= STAGES * ((KEYS ? 100 : 64) * K + 32 * COLUMNS + 1296) +
                                      PREPARERS * (KEYS ? 68 * (K + 4) : 1280) + 1056 + 127,
                "SMEM of the manifest must have room for it");
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0), lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    for (Barrier& ready : shared.ready) ready.init(1);
    for (Barrier& empty : shared.empty) empty.init(WALKERS);
    shared.order.begin(blockIdx.x, gridDim.x, sequences * value_heads * SLICES);
  }
  pdl_wait();
  __syncthreads();
  if (shared.order.sorts(cu_seqlens, tokens, sequences, value_heads * SLICES)) {
    auto& scratch = *reinterpret_cast<ChunkOrder::Scratch*>(shared.stages);  // where chunks will be
    shared.order.template sort<DPLR_TOKENS>(cu_seqlens, sequences, value_heads * SLICES, scratch);
  }
  const ChunkSequences in{cu_seqlens, state_indices, has_initial_state, tokens,
                          sequences,  value_heads,   &shared.order};

  if (warp >= WALKERS) {
    const int own = warp - WALKERS;
    DeltaMmaPreparation<T, G, B, K, V, COLUMNS, GATE, GATE_INPUT, BETA, BETA_INPUT, L2NORM> preparation(
        shared.scratch[own], {q, k, v, beta, g, a_log, dt_bias, stride_q, stride_k, stride_v, heads,
                              value_heads, scale, lower_bound});
    prepare_chunks<PREPARERS>(shared, preparation, DplrChunks<SLICES, POOL, true>(in, own), own);
  } else {
    DeltaMmaWalk<T, K, KEYS, COLUMNS, GATE != Gate::none> walk;
    int stage = 0;
    u32 parity = 0;
    ChunkItems<SLICES, POOL, false, true> items(in, blockIdx.x, gridDim.x);
#pragma unroll 1
    for (; items.any(); items.next()) {
      const ChunkItem item = items.now();
      T* to = out + item.begin * stride_out + static_cast<i64>(item.value_head) * V + item.slice * COLUMNS;
      if (!item.exists()) {
        walk.store_zeros(to, stride_out, item.end - item.begin);
        continue;
      }
      // The index of the columns of the state in a slot.
      const auto state_at = [&](i32 slot) {
        return slot * (POOL ? stride_state : static_cast<i64>(value_heads) * (K * V)) +
               static_cast<i64>(item.value_head) * (K * V) + item.slice * COLUMNS * (V_FIRST ? K : 1);
      };
      walk.template load_from<V, V_FIRST>(initial_state && item.starts ? initial_state + state_at(item.slot)
                                                                       : nullptr);
#pragma unroll 1
      for (int first = item.begin; first < item.end; first += DPLR_TOKENS, to += DPLR_TOKENS * stride_out) {
        const int next = smaller(first + DPLR_TOKENS, item.end);
        shared.ready[stage].wait(parity);
        if (items.last() && next == item.end) pdl_launch_dependents();
        walk.step(shared.stages[stage], to, stride_out, item.end - first, [&] {
          __syncwarp();
          if (lane == 0) shared.empty[stage].arrive();
        });
        if (++stage == STAGES) stage = 0, parity ^= 1;
        if constexpr (SLOTS == Slots::token) {
          if ((next - item.begin) % CHECKPOINT != 0 && next != item.end) continue;
          const i32 slot = state_slot<SLOTS>(state_out_indices, next - 1);
          if (slot >= 0) walk.template store_to<V, V_FIRST>(final_state + state_at(slot));
        }
      }
      if (SLOTS != Slots::token && final_state)
        walk.template store_to<V, V_FIRST>(final_state + state_at(item.slot));
    }
  }
}

}  // namespace kiln
