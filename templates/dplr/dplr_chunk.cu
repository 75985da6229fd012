// Runs RWKV7's recurrence for prompts: outputs and states as wkv7_recurrent has them, in chunks of 16 tokens whose work is
// matrix products.
//
// An item is 64 columns of the state of one head, and the tokens of its sequence. A block takes an item after the other. Its
// warps work on different chunks, and items, at the same time:
// - Four warps hold the columns of the state, and take them from chunk to chunk (DplrWalk).
// - Each of the other warps loads and prepares every PREPARERS-th chunk (DplrPreparation); this does not depend on the state.
#include "dplr/chunks.cuh"
#include "dplr/prepare.cuh"
#include "dplr/walk.cuh"
#include "kiln/pdl.cuh"
#include "recurrent/state_slots.cuh"

namespace kiln {

// REQUIRES: blockDim.x = 128 + 32 * PREPARERS. Only Wkv7Form::a_b reads b, and only kk_a reads kk; the array that is not
// read may be null.
template <typename T, int K, int V, Wkv7Form FORM, typename W, bool VARLEN, typename STATE, bool V_FIRST,
          Slots SLOTS, int PREPARERS>
__global__ void __launch_bounds__(128 + 32 * PREPARERS, 1)
    dplr_chunk(T* o, const T* r, const W* w, const T* k, const T* v, const T* a, i32 sequences, i64 length,
               i32 heads, const T* b, const T* kk, f32 scale, const STATE* initial_state, STATE* final_state,
               const i64* cu_seqlens, const i32* state_indices, const u8* has_initial_state, i32 pool,
               i64 stride_state) {
  constexpr bool POOL = SLOTS != Slots::none;
  constexpr int SLICES = V / DPLR_COLUMNS, WALKERS = 4;
  using Shared = DplrShared<T, W, K, PREPARERS>;
  extern __shared__ __align__(1024) u8 bytes[];
  constexpr int STAGES = Shared::STAGES;
  static_assert(sizeof(Shared) <= STAGES * (16 * (8 * K + K * sizeof(W) + 128) + 4 * K + 16) +
                                      PREPARERS * 68 * (K + 4) + 1056 + 127,
                "SMEM of the manifest must have room for it");
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0), lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    for (Barrier& ready : shared.ready) ready.init(1);
    for (Barrier& empty : shared.empty) empty.init(WALKERS);
    shared.order.begin(blockIdx.x, gridDim.x, sequences * heads * SLICES);
  }
  pdl_wait();
  __syncthreads();
  if (VARLEN && shared.order.sorts(cu_seqlens, static_cast<i32>(length), sequences, heads * SLICES)) {
    auto& scratch = *reinterpret_cast<ChunkOrder::Scratch*>(shared.stages);  // where chunks will be
    shared.order.template sort<DPLR_TOKENS>(cu_seqlens, sequences, heads * SLICES, scratch);
  }
  const ChunkSequences in{VARLEN ? cu_seqlens : nullptr,
                          state_indices,
                          has_initial_state,
                          static_cast<i32>(VARLEN ? length : sequences * length),
                          sequences,
                          heads,
                          &shared.order};

  if (warp >= WALKERS) {
    const int own = warp - WALKERS;
    DplrPreparation<T, W, K, V, FORM> preparation(
        shared.scratch[own], {r, k, FORM == Wkv7Form::kk_a ? kk : a, FORM == Wkv7Form::kk_a ? a : b, w, v},
        heads, scale);
    prepare_chunks<PREPARERS>(shared, preparation, DplrChunks<SLICES, POOL, VARLEN>(in, own), own);
  } else {
    DplrWalk<T, K> walk;
    const i64 stride = static_cast<i64>(heads) * V;
    int stage = 0;
    u32 parity = 0;
    ChunkItems<SLICES, POOL, false, VARLEN> items(in, blockIdx.x, gridDim.x);
#pragma unroll 1
    for (; items.any(); items.next()) {
      const ChunkItem item = items.now();
      T* to = o + item.begin * stride + item.value_head * V + item.slice * DPLR_COLUMNS;
      if (!item.exists()) {
        walk.store_zeros(to, stride, item.end - item.begin);
        continue;
      }
      const i64 state_at = item.slot * (POOL ? stride_state : static_cast<i64>(heads) * (K * V)) +
                           static_cast<i64>(item.value_head) * (K * V) +
                           item.slice * DPLR_COLUMNS * (V_FIRST ? K : 1);
      walk.template load_from<V, V_FIRST>(initial_state && item.starts ? initial_state + state_at : nullptr);
#pragma unroll 1
      for (int first = item.begin; first < item.end; first += DPLR_TOKENS, to += DPLR_TOKENS * stride) {
        shared.ready[stage].wait(parity);
        if (items.last() && first + DPLR_TOKENS >= item.end) pdl_launch_dependents();
        walk.step(shared.stages[stage], to, stride, item.end - first, [&] {
          __syncwarp();
          if (lane == 0) shared.empty[stage].arrive();
        });
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
      if (final_state) walk.template store_to<V, V_FIRST>(final_state + state_at);
    }
  }
}

}  // namespace kiln
