// Computes the delta rule for prompts on Hopper: outputs and states as delta_recurrent has them, in chunks of 64 tokens whose
// work is matrix products.
//
// An item is one or two slices of 64 columns of the state of one value head, and the tokens of its sequence. A cluster of
// blocks takes an item after the other. Its warpgroups work on different chunks, and items, at the same time:
// - Some blocks prepare. Each of their warpgroups takes the next chunk that no other one has (DeltaPreparation), and copies
//   the result to the blocks that walk. This does not depend on the state.
// - The first block walks, and with two slices in a cluster of more than three blocks also the second one. A warpgroup holds a
//   slice of the state, and takes it from chunk to chunk (DeltaWalk). Another thread loads q, k and v into a ring of stages.
// - With a gate of each key only the first block walks, because a prepared chunk has 65 KiB then (K of 128), and its copies take
//   longer than the walk.
#include "kiln/cluster.cuh"
#include "kiln/pdl.cuh"
#include "recurrent/chunk/places.cuh"
#include "recurrent/chunk/prepare_keys.cuh"
#include "recurrent/chunk/walk.cuh"
#include "recurrent/state_slots.cuh"

namespace kiln {

// REQUIRES: blockDim = 512. A thread begins with 128 registers, and two warpgroups give most of their own to those that walk.
template <typename T, int K, int V, Gate GATE, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT,
          bool L2NORM, typename G, typename B, typename STATE, bool V_FIRST, Slots SLOTS, int STAGES>
__global__ void __launch_bounds__(512, 1)
    delta_chunk(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                const __grid_constant__ TensorMap map_v, T* out, const B* beta, i32 tokens, i32 sequences,
                i32 heads, i32 value_heads, i64 stride_out, f32 scale, const G* g, const STATE* initial_state,
                STATE* final_state, const i64* cu_seqlens, const f32* a_log, const f32* dt_bias,
                f32 lower_bound, const i32* state_indices, const u8* has_initial_state, i64 stride_state,
                const i32* state_out_indices) {
  constexpr int WALKS = V % 128 == 0 ? 2 : 1;  // slices of an item
  constexpr bool POOL = SLOTS != Slots::none;
  constexpr int LOADS = 2;  // the warpgroup that loads for those that walk
  constexpr bool KEYS = GATE == Gate::key;
  using Types = ChunkTypes<T, K, WALKS, KEYS>;
  using Tiles = typename Types::Tiles;
  using Prepared = typename Types::Prepared;
  using Memory = typename Types::Memory;
  using Walking = WalkMemory<T, Tiles, WALKS, STAGES>;
  using Preparing = PreparationsMemory<Memory, ChunkPlace, Types::GROUPS>;
  constexpr u32 BYTES = CHUNK * ((KEYS ? 0 : 2 * K) + WALKS * 64) * sizeof(T) + Prepared::BYTES;
  static_assert(sizeof(Walking) <= STAGES * (CHUNK * ((KEYS ? 3 : 2) * K + WALKS * 64 + 128) * 2 + 1024) +
                                       WALKS * 8192 + 1024 &&
                    sizeof(Preparing) <=
                        1024 + (KEYS ? 2 * (CHUNK * 3 * K * 2 + CHUNK * (K + 8) * 4 + 52 * K + 18 * 1024)
                                     : 4 * (CHUNK * 2 * K * 2 + 18 * 1024)),
                "SMEM of the manifest must have room for both");
  static_assert(STAGES <= Types::GROUPS, "a warpgroup has room for one chunk at a time");
  extern __shared__ __align__(1024) u8 bytes[];
  Walking& shared = *reinterpret_cast<Walking*>(bytes);        // of a block that walks
  Preparing& workshop = *reinterpret_cast<Preparing*>(bytes);  // of a block that prepares
  const int group = warpgroup(), thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  const int rank = __shfl_sync(~0u, static_cast<int>(cluster_rank()), 0);
  // These are computed where they are needed, because registers are few.
  const auto blocks = [] { return static_cast<int>(cluster_size()); };
  const auto walkers = [&] { return WALKS > 1 && blocks() > 3 && !KEYS ? 2 : 1; };  // blocks that walk
  const auto walks = [&] { return WALKS / walkers(); };                             // slices of such a block

  if (threadIdx.x == 0) {
    if (rank < walkers()) {
      shared.ring.init(walks() * 4);  // each warp that walks releases a stage
    } else {
      for (int i = 0; i < Preparing::GROUPS; ++i) {
        workshop.loaded[i].init(1);
        workshop.room[i].init(walkers()), workshop.taken[i].init(walkers());
      }
      fence_async_shared();
    }
    barriers_ready();
    tma_prefetch(map_q);
    tma_prefetch(map_k);
    if (rank < walkers()) tma_prefetch(map_v);
  }
  __syncwarp();
  cluster_arrive_relaxed();
  pdl_wait();
  cluster_wait();
  const ChunkSequences in{cu_seqlens,  state_indices, has_initial_state, tokens, sequences,
                          value_heads, nullptr};

  if (rank >= walkers()) {
    const f32 factor = scale == 0.0f ? 1.0f / sqrtf(static_cast<f32>(K)) : scale;
    const ChunkGates<G, B> gates{beta, g, a_log, dt_bias, value_heads, lower_bound};
    const auto turns = [&] { return (blocks() - walkers()) * Preparing::GROUPS; };
    const int turn =
        group * (blocks() - walkers()) + rank - walkers();  // the first chunk, as ChunkTurn counts
    int stage = turn % STAGES;
    ChunkPlace& place = workshop.place[group];
    // For thread 0: takes the chunk that comes `chunks` chunks later.
    const auto take = [&](ChunkPlace from, int chunks) {
      const ChunkPlace to = chunk_after<V / 64 / WALKS, POOL>(from, chunks, in, gridDim.x / blocks());
      place = to;
      return to;
    };
    // For thread 0: begins to load q and k of a chunk, if it exists.
    const auto begin = [&](const ChunkPlace& chunk, ChunkPanel<T>* q, ChunkPanel<T>* k) {
      if (chunk.first < 0) return;
      const int head = chunk.item.value_head / (value_heads / heads);
      Barrier& loaded = workshop.loaded[group];
      loaded.arrive_expecting(CHUNK * 2 * K * sizeof(T));
#pragma unroll
      for (int i = 0; i < K / 64; ++i) {
        tma_load(k[i], map_k, loaded, i * 64, head, chunk.first);
        tma_load(q[i], map_q, loaded, i * 64, head, chunk.first);
      }
    };
    // For thread 0: copies the prepared chunk to the blocks that walk.
    const auto send = [&](const Prepared& prepared, u32 parity) {
      workshop.room[group].wait(parity);
      for (int to = 0; to < walkers(); ++to)
        cluster_copy(&shared.tiles[stage].prepared, to, &prepared, Prepared::BYTES, shared.ring.full[stage]);
    };
    if (thread == 0 && group < Preparing::GROUPS) take(ChunkPlace{blockIdx.x / blocks(), -1, {}}, turn);
    sync_threads(1 + group, 128);
    u32 parity = 0;

    if constexpr (!KEYS) {
      Memory& memory = workshop.group[group];
      DeltaPreparation<T, G, B, K, GATE, GATE_INPUT, BETA, BETA_INPUT, L2NORM> preparation(
          workshop.group, group, gates, factor);
      if (thread == 0) begin(place, memory.q, memory.k);
      preparation.fetch(place);
#pragma unroll 1
      for (; place.first >= 0; parity ^= 1, stage = (stage + turns()) % STAGES) {
        const int count = smaller(CHUNK, place.item.end - place.first);
        workshop.loaded[group].wait(parity);
        __syncwarp();
        preparation.make(
            count,
            [&] {
              if (thread != 0) return;
              begin(take(place, turns()), memory.q, memory.k);
            },
            [&] {
              workshop.taken[group].wait(parity ^ 1);
              __syncwarp();
            },
            place);
        if (thread == 0) send(memory.prepared, parity);
        __syncwarp();
      }
      workshop.taken[group].wait(parity ^
                                 1);  // otherwise the last arrival could find that this block has ended
    } else if (group < Preparing::GROUPS) {
      take_registers_to<224>();
      Prepared& prepared = workshop.group[group].prepared;
      KeyPreparation<T, G, B, K, GATE_INPUT, BETA, BETA_INPUT, L2NORM> preparation(workshop.group, group,
                                                                                   gates, factor);
      if (thread == 0) begin(place, prepared.q, prepared.k);
      __syncwarp();
      preparation.fetch(place);
      if (place.first >= 0) preparation.write_gates();
#pragma unroll 1
      for (; place.first >= 0; parity ^= 1, stage = (stage + turns()) % STAGES) {
        const int count = smaller(CHUNK, place.item.end - place.first);
        workshop.loaded[group].wait(parity);
        __syncwarp();
        preparation.make(
            count,
            [&] {
              if (thread == 0) take(place, turns());
              __syncwarp();
            },
            place);
        if (thread == 0) send(prepared, parity);
        __syncwarp();
        if (place.first >= 0) preparation.write_gates();
        if (thread == 0) {
          workshop.taken[group].wait(parity);
          begin(place, prepared.q, prepared.k);
        }
        __syncwarp();
      }
    } else {
      give_registers_to<32>();
    }
    if (threadIdx.x == 0) pdl_launch_dependents();
  } else if (group >= LOADS) {
    give_registers_to<32>();
    if (threadIdx.x == LOADS * 128) {
      RingPlace at;
      ChunkTurn<Preparing::GROUPS> turn(walkers(), blocks());
      ChunkItems<V / 64 / WALKS, POOL, true> items(in, blockIdx.x / blocks(), gridDim.x / blocks());
#pragma unroll 1
      for (; items.any(); items.next()) {
        const ChunkItem item = items.now();
        if (!item.exists()) continue;
        const int head = item.value_head / (value_heads / heads);
#pragma unroll 1
        for (int first = item.begin; first < item.end; first += CHUNK, shared.ring.next(at)) {
          Tiles& tiles = shared.tiles[at.stage];
          Barrier& full = shared.ring.full[at.stage];
          shared.ring.begin(at, BYTES - (WALKS - walks()) * CHUNK * 64 * sizeof(T));
          cluster_arrive_at(workshop.room[turn.group()], turn.rank());
          turn.next();
          if constexpr (!KEYS) {
#pragma unroll
            for (int i = 0; i < K / 64; ++i) tma_load(tiles.k[i], map_k, full, i * 64, head, first);
#pragma unroll
            for (int i = 0; i < K / 64; ++i) tma_load(tiles.q[i], map_q, full, i * 64, head, first);
          }
          for (int i = 0; i < walks(); ++i)
            tma_load(tiles.v[i], map_v, full, (item.slice * WALKS + rank + i) * 64, item.value_head, first);
        }
      }
    }
    __syncwarp();
  } else if (group < walks()) {
    take_registers_to<224>();
    const int warp = threadIdx.x / 32;
    const int slice = rank + group;  // one of the two is 0
    T* const staging = shared.out[warp];
    DeltaWalk<T, K, WALKS, GATE> walk;
    RingPlace at;
    ChunkTurn<Preparing::GROUPS> turn(walkers(), blocks());
    ChunkItems<V / 64 / WALKS, POOL, !KEYS> items(in, blockIdx.x / blocks(), gridDim.x / blocks());
#pragma unroll 1
    for (; items.any(); items.next()) {
      const ChunkItem item = items.now();
      const int columns = (item.slice * WALKS + slice) * 64;
      T* to = out + item.begin * stride_out + static_cast<i64>(item.value_head) * V + columns + warp % 4 * 16;
      int first = item.begin;
      if (!item.exists()) {
        for (; first < item.end; first += CHUNK, to += CHUNK * stride_out)
          walk.store_zeros(to, stride_out, item.end - first);
        continue;
      }
      // The index of the columns of the state in a slot.
      const auto state_at = [&](i32 slot) {
        return slot * (POOL ? stride_state : static_cast<i64>(value_heads) * (K * V)) +
               static_cast<i64>(item.value_head) * (K * V) + columns * (V_FIRST ? K : 1);
      };
      walk.template load_from<V, V_FIRST>(initial_state && item.starts ? initial_state + state_at(item.slot)
                                                                       : nullptr);
#pragma unroll 1
      for (; first < item.end; first += CHUNK, to += CHUNK * stride_out, shared.ring.next(at)) {
        shared.ring.wait(at);
        __syncwarp();
        if (threadIdx.x == 0) cluster_arrive_at(workshop.taken[turn.group()], turn.rank());
        turn.next();
        if (items.last() && first + CHUNK >= item.end) pdl_launch_dependents();
        i32 store_at = -1;  // the slot for the state after this chunk
        if constexpr (SLOTS == Slots::token)
          store_at = state_slot<SLOTS>(state_out_indices, smaller(first + CHUNK, item.end) - 1);
        walk.step(
            shared.tiles[at.stage], group, smaller(CHUNK, item.end - first), 1 + group, staging,
            [&] {  // the chunk before
              if (first > item.begin) walk.store_outputs(to - CHUNK * stride_out, stride_out, staging, CHUNK);
            },
            [&] {
              __syncwarp();
              if (lane == 0) shared.ring.release(at.stage);
            });
        if (SLOTS == Slots::token && store_at >= 0)
          walk.template store_to<V, V_FIRST>(final_state + state_at(store_at));
      }
      if (item.begin < item.end)
        walk.store_outputs(to - CHUNK * stride_out, stride_out, staging, item.end - first + CHUNK);
      if (SLOTS != Slots::token && final_state)
        walk.template store_to<V, V_FIRST>(final_state + state_at(item.slot));
    }
  }
  // A block must not end while another one copies to it, or from it.
  __syncwarp();
  cluster_arrive_relaxed();
  cluster_wait();
}

}  // namespace kiln
