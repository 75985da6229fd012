// Computes the delta rule for prompts on Hopper: outputs and states as delta_recurrent has them, in chunks of 64 tokens whose
// work is matrix products.
//
// An item is 64 columns of the state of one value head, and the tokens of its sequence. A block takes an item after the other.
// Its warpgroups work on different chunks, and items, at the same time:
// - One thread loads q, k and v by TMA into a ring of stages.
// - Two warpgroups prepare every other chunk each (DeltaPreparation); this does not depend on the state.
// - One warpgroup holds the columns of the state, and takes them from chunk to chunk (DeltaWalk).
#include "kiln/pdl.cuh"
#include "recurrent/chunk/items.cuh"
#include "recurrent/chunk/prepare.cuh"
#include "recurrent/chunk/walk.cuh"

namespace kiln {

// REQUIRES: blockDim = 512. A thread begins with 128 registers, and the loading warpgroup gives most of its own to the one that
// walks.
template <typename T, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT,
          bool L2NORM, typename G, typename B, typename STATE, bool V_FIRST, bool SLOTS, int STAGES>
__global__ void __launch_bounds__(512, 1)
    delta_chunk(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                const __grid_constant__ TensorMap map_v, T* out, const B* beta, i32 tokens, i32 sequences,
                i32 heads, i32 value_heads, i64 stride_out, f32 scale, const G* g, const STATE* initial_state,
                STATE* final_state, const i64* cu_seqlens, const f32* a_log, const f32* dt_bias,
                f32 lower_bound, const i32* state_indices, const u8* has_initial_state, i64 stride_state) {
  constexpr int WALKS = 2, LOADS = 3;  // warpgroups 0 and 1 prepare
  constexpr u32 BYTES = CHUNK * (2 * K + 64) * sizeof(T);
  extern __shared__ __align__(1024) u8 bytes[];
  using Shared = ChunkShared<T, K, STAGES>;
  static_assert(sizeof(Shared) <= STAGES * (CHUNK * (2 * K + 192) * 2 + 1024) + 46 * 1024,
                "SMEM of the manifest must have room for it");
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  const int group = warpgroup(), lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    shared.ring.init(4);  // each warp that walks releases a stage
    for (Barrier& ready : shared.ready) ready.init(4);
    barriers_ready();
  }
  if (threadIdx.x == LOADS * 128) {
    tma_prefetch(map_q);
    tma_prefetch(map_k);
    tma_prefetch(map_v);
  }
  pdl_wait();
  __syncthreads();
  const ChunkSequences in{cu_seqlens, state_indices, has_initial_state, tokens, sequences, value_heads};
  RingPlace at;

  if (group == LOADS) {
    give_registers_to<24>();
    if (threadIdx.x != LOADS * 128) return;
    const int group_of_heads = value_heads / heads;
    ChunkItems<V / 64, SLOTS, true> items(in);
#pragma unroll 1
    for (; items.any(); items.next()) {
      const ChunkItem item = items.now();
      if (!item.exists()) continue;
#pragma unroll 1
      for (int first = item.begin; first < item.end; first += CHUNK, shared.ring.next(at)) {
        ChunkTiles<T, K>& tiles = shared.tiles[at.stage];
        Barrier& full = shared.ring.full[at.stage];
        const int head = item.value_head / group_of_heads;
        shared.ring.begin(at, BYTES);
#pragma unroll
        for (int i = 0; i < K / 64; ++i) tma_load(tiles.k[i], map_k, full, i * 64, head, first);
#pragma unroll
        for (int i = 0; i < K / 64; ++i) tma_load(tiles.q[i], map_q, full, i * 64, head, first);
        tma_load(tiles.v, map_v, full, item.slice * 64, item.value_head, first);
      }
    }
  } else if (group == WALKS) {
    take_registers_to<232>();
    const int warp = threadIdx.x / 32 % 4;
    T* const staging = shared.out[warp];
    DeltaWalk<T, K, GATE == Gate::head> walk;
    ChunkItems<V / 64, SLOTS, true> items(in);
#pragma unroll 1
    for (; items.any(); items.next()) {
      const ChunkItem item = items.now();
      T* to =
          out + item.begin * stride_out + static_cast<i64>(item.value_head) * V + item.slice * 64 + warp * 16;
      int first = item.begin;
      if (!item.exists()) {
        for (; first < item.end; first += CHUNK, to += CHUNK * stride_out)
          walk.store_zeros(to, stride_out, item.end - first);
        continue;
      }
      const i64 state_at = item.slot * (SLOTS ? stride_state : static_cast<i64>(value_heads) * (K * V)) +
                           static_cast<i64>(item.value_head) * (K * V) + item.slice * 64 * (V_FIRST ? K : 1);
      walk.template load_from<V, V_FIRST>(initial_state && item.starts ? initial_state + state_at : nullptr);
#pragma unroll 1
      for (; first < item.end; first += CHUNK, to += CHUNK * stride_out, shared.ring.next(at)) {
        shared.ring.wait(at);
        shared.ready[at.stage].wait(at.parity);
        if (items.last() && first + CHUNK >= item.end) pdl_launch_dependents();
        walk.step(
            shared.tiles[at.stage], shared.factors[at.stage], smaller(CHUNK, item.end - first), staging,
            [&] {  // the chunk before
              if (first > item.begin) walk.store_outputs(to - CHUNK * stride_out, stride_out, staging, CHUNK);
            },
            [&] {
              __syncwarp();
              if (lane == 0) shared.ring.release(at.stage);
            });
      }
      if (item.begin < item.end)
        walk.store_outputs(to - CHUNK * stride_out, stride_out, staging, item.end - first + CHUNK);
      if (final_state) walk.template store_to<V, V_FIRST>(final_state + state_at);
    }
  } else {
    const f32 factor = scale == 0.0f ? 1.0f / sqrtf(static_cast<f32>(K)) : scale;
    int chunks = 0;  // of the items before, modulo 2
    if (group == 1) shared.ring.next(at);
    ChunkItems<V / 64, SLOTS, false> items(in);
#pragma unroll 1
    for (; items.any(); items.next()) {
      const ChunkItem item = items.now();
      if (!item.exists()) continue;
      ChunkGates<G, B> gates{beta, g, value_heads, item.value_head, 1.0f, 0.0f, lower_bound};
      if (GATE_INPUT != GateInput::log_decay && a_log) gates.rate = expf(load_one(a_log + item.value_head));
      if (GATE_INPUT != GateInput::log_decay && dt_bias) gates.bias = load_one(dt_bias + item.value_head);
      DeltaPreparation<T, G, B, K, GATE, GATE_INPUT, BETA, BETA_INPUT, L2NORM> preparation(
          shared.preparation[group], gates, item.end, factor, 1 + group);
      int first = item.begin + (chunks ^ group) * CHUNK;
      preparation.fetch(first);
#pragma unroll 1
      for (; first < item.end; first += 2 * CHUNK) {
        shared.ring.wait(at);
        preparation.make(shared.tiles[at.stage], shared.factors[at.stage], smaller(CHUNK, item.end - first),
                         first + 2 * CHUNK);
        __syncwarp();
        if (lane == 0) shared.ready[at.stage].arrive();
        shared.ring.next(at);
        shared.ring.next(at);
      }
      chunks ^= (item.end - item.begin + CHUNK - 1) / CHUNK % 2;
    }
  }
}

}  // namespace kiln
