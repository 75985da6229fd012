// Applies rotary position embedding to q and k in one launch, and optionally appends k and v to the
// paged cache.
//
// A token has q_heads + kv_heads heads to rotate. With a cache it also has kv_heads heads of v to copy. A
// team of LANES threads shares a head, and takes up to UNROLL heads of one token.
//
// The angles come from a table, or the block computes them:
// - With a table, a thread loads the angles of its own pairs.
// - Otherwise the TEAMS of a block have neighbouring tokens. The block computes cos and sin of these tokens
//   once, into shared memory, while the loads of the heads into registers are under way.
#include "attention/heads.cuh"
#include "attention/paged.cuh"
#include "attention/rotary.cuh"
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// Returns the second argument of __launch_bounds__. With four heads per thread, three quarters of the threads
// have enough loads in flight, and they need the registers. The conversion to fp8 also needs registers.
__host__ __device__ constexpr int rope_blocks(int threads, int unroll, bool converts) {
  const int whole = (threads + 31) / 32 * 32, quarters = 4 - (unroll > 2) - converts;
  return larger(1, resident_blocks(whole) * quarters / 4);
}

// REQUIRES: blockDim = (LANES, TEAMS), tokens * heads < 2^31.
template <typename T, int D, int ROTARY, bool INTERLEAVE, typename POSITION, Angles ANGLES, typename TABLE,
          Paging PAGING, typename KV, typename I, int VEC, int LANES, int TEAMS, int UNROLL>
__global__ void __launch_bounds__(LANES* TEAMS,
                                  rope_blocks(LANES* TEAMS, UNROLL, PAGING != Paging::none && is_fp8<KV>))
    rope(T* q_out, T* k_out, const T* q, const T* k, const POSITION* positions, i32 tokens, i32 q_heads,
         i32 kv_heads, i64 stride_q, i64 stride_q_head, i64 stride_k, i64 stride_k_head, i64 stride_q_out,
         i64 stride_q_out_head, i64 stride_k_out, i64 stride_k_out_head, const TABLE* cos_sin, f32 rope_theta,
         f32 rope_scale, f32 low_freq_factor, f32 high_freq_factor, f32 old_context_length, const T* v,
         i64 stride_v, i64 stride_v_head, KV* k_cache, KV* v_cache, i32 page_size, i64 stride_page,
         i64 stride_slot, i64 stride_cache_head, const I* slot_mapping, const I* kv_indices,
         const I* kv_indptr, const I* batch_indices, const I* cache_positions, const f32* k_scale,
         const f32* v_scale, i64 stride_scale) {
  using Layout = HeadLayout<D, ROTARY, INTERLEAVE, VEC>;
  constexpr int PAIRS = Layout::PAIRS;
  static_assert(LANES == Layout::LANES, "LANES must be the threads that a head needs");
  constexpr int STEP = LANES * TEAMS / PAIRS;  // tokens whose angles the block makes at once
  constexpr bool CACHED = PAGING != Paging::none, MADE = ANGLES != Angles::table;
  __shared__ __align__(16) f32 made_cos[MADE ? TEAMS : 1][PAIRS];
  __shared__ __align__(16) f32 made_sin[MADE ? TEAMS : 1][PAIRS];

  pdl_launch_dependents_of_few<64>();
  const Team<UNROLL, TEAMS, CACHED> team(tokens, q_heads, kv_heads);
  const u32 token = team.token;
  const int lane = threadIdx.x;
  const int thread = threadIdx.y * LANES + threadIdx.x, pair = thread % PAIRS, nth = thread / PAIRS;
  u64 turn = 0;
  if constexpr (MADE)
    turn = turn_per_position<ROTARY, ANGLES>(
        pair, {rope_theta, rope_scale, low_freq_factor, high_freq_factor, old_context_length});

  // The return has a second purpose: it makes the compiler compute the team before the wait, not after it.
  if (!MADE && team.heads <= 0) return;
  pdl_wait();
  const bool turns = Layout::turns(lane) && !team.is_v && team.heads > 0;
  // With MADE, the thread makes the angles of its pair for the tokens nth, nth + STEP and so on
  // below `angles`.
  const int angles = nth < STEP ? team.count : 0;
  i64 position = 0;
  if (MADE ? nth < angles : turns) position = load_index(positions + (MADE ? team.first_token + nth : token));
  // With a table, this call is also a fence for the compiler. The loads from the position to the table are
  // the longest chain, and so begin first.
  if (!MADE) pdl_launch_dependents();
  const Pages<I> pages{slot_mapping, kv_indices,  kv_indptr,  batch_indices,
                       page_size,    stride_page, stride_slot};
  const bool stored = CACHED && !team.is_q && team.heads > 0;
  i64 key = 0, cache_position = 0;
  f32 scale[UNROLL];
  if constexpr (CACHED) {
    if (stored) key = pages.template key<PAGING>(token);
    if (PAGING == Paging::page_table && stored)
      cache_position = cache_positions ? load_index(cache_positions + token) : load_index(positions + token);
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      if (stored && i < team.heads)
        scale[i] = load_scale<KV>(team.is_v ? v_scale : k_scale, stride_scale, team.head + i);
    }
  }
  const i64 from_head = team.is_q ? stride_q_head : team.is_v ? stride_v_head : stride_k_head;
  const T* from = (team.is_q   ? q
                   : team.is_v ? v
                               : k) +
                  token * (team.is_q   ? stride_q
                           : team.is_v ? stride_v
                                       : stride_k) +
                  team.head * from_head;
  Vec<T, VEC> a[UNROLL], b[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (i >= team.heads) continue;
    const T* p = from + i * from_head;
    a[i] = load<VEC>(p + Layout::first(lane));
    if (Layout::has_second(lane)) b[i] = load<VEC>(p + Layout::second(lane));
  }
  pdl_launch_dependents();
  f32 cos[VEC], sin[VEC];
  if (!MADE && turns) {
    const TABLE* row = cos_sin + position * ROTARY;
    Layout::load_pairs(row, lane, cos);
    Layout::load_pairs(row + PAIRS, lane, sin);
  }
  // The token's place in the cache. Its loads and its division run beside the loads of the table.
  i64 place = -1;
  if constexpr (CACHED) {
    if (stored) place = pages.template place<PAGING>(key, cache_position);
  }
  if constexpr (MADE) {
#pragma unroll 1
    for (int j = nth; j < angles; j += STEP) {
      const Direction d = direction(j == nth ? position : load_index(positions + team.first_token + j), turn);
      made_cos[j][pair] = d.cos;
      made_sin[j][pair] = d.sin;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      if (turns)
        cos[j] = made_cos[token - team.first_token][Layout::pair(lane, j)],
        sin[j] = made_sin[token - team.first_token][Layout::pair(lane, j)];
    }
  }

  const i64 to_head = team.is_q ? stride_q_out_head : stride_k_out_head;
  T* to = (team.is_q ? q_out + token * stride_q_out : k_out + token * stride_k_out) + team.head * to_head;
  // In place, elements that are not rotated are not written.
  const bool writes = team.is_q ? turns || q_out != q : !team.is_v && k_out && (turns || k_out != k);
  KV* cache = (team.is_v ? v_cache : k_cache) + place + team.head * stride_cache_head;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    if (i >= team.heads) continue;
    f32 x[VEC], y[VEC];
    widen(a[i], x);
    widen(b[i], y);
    if (turns) {
      Layout::rotate_all(x, y, cos, sin);
      a[i] = narrow<T>(x);
      b[i] = narrow<T>(y);
    }
    if (writes) {
      T* p = to + i * to_head;
      store(p + Layout::first(lane), a[i]);
      if (Layout::has_second(lane)) store(p + Layout::second(lane), b[i]);
    }
    if (CACHED && place >= 0) {
      KV* p = cache + i * stride_cache_head;
      store_cached(p + Layout::first(lane), a[i], x, scale[i]);
      if (Layout::has_second(lane)) store_cached(p + Layout::second(lane), b[i], y, scale[i]);
    }
  }
}

}  // namespace kiln
