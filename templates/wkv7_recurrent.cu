// The recurrence of RWKV7 over the tokens of each sequence: S = diag(exp w) S + b (a^T S) + k v^T, o = scale * S^T r, for each head's K x V state S.
//
// A step needs the one before it, so that what can be done beside it decides: a warp keeps some columns of the state in registers (StateTile), and few
// sequences are spread over more and smaller blocks (blockDim.y). Inputs are copied ahead and shared by a block (Wkv7Steps). Each step reduces
// a^T S over the lanes of a column, beside the o of the step before.
#include "kiln/pdl.cuh"
#include "kiln/state_tile.cuh"
#include "kiln/wkv7_steps.cuh"

namespace kiln {

// REQUIRES: blockDim = (32, 1 to WARPS), gridDim.x = sequences * heads * ceil(V / columns of a block); a null b or kk with FORM is not read.
template <typename T, int K, int V, Wkv7Form FORM, typename W, bool VARLEN, int LANES, int COLS, int STEPS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, 1)
    wkv7_recurrent(T* o, const T* r, const W* w, const T* k, const T* v, const T* a, i32 sequences, i64 length, i32 heads, const T* b, const T* kk, f32 scale,
                   const f32* initial_state, f32* final_state, const i64* cu_seqlens) {
  using Tile = StateTile<K, V, LANES, COLS>;
  using Steps = Wkv7Steps<T, W, K, V, FORM, Tile, Tile::COLUMNS * WARPS, STEPS>;
  __shared__ typename Steps::Storage storage;

  const int columns = Tile::COLUMNS * blockDim.y;  // of a block
  const u32 slices = (V + columns - 1) / columns, state = blockIdx.x / slices;
  const i32 n = state / heads, head = state % heads;
  const int first_column = blockIdx.x % slices * columns, warp_column = threadIdx.y * Tile::COLUMNS;
  const int column = first_column + warp_column + Tile::column(), o_column = first_column + warp_column + Tile::summed_column();

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  const Sequence span = sequence<VARLEN>(cu_seqlens, n, length);
  Steps steps(storage, {r, k, FORM == Wkv7Form::kk_a ? kk : a, FORM == Wkv7Form::kk_a ? a : b, w, v}, span, heads, head, first_column);
  Tile s;
  s.load_from(initial_state ? initial_state + static_cast<i64>(state) * (K * V) : nullptr, column);

  const i64 count = span.end - span.begin;
  const i64 o_step = static_cast<i64>(heads) * V;
  T* o_next = o + (span.begin * heads + head) * V + o_column - o_step;
  f32 o_part[COLS] = {};  // of the step before, over this lane's rows
  bool stores = false;    // there is a step before, and this lane has a column of its o
  const auto finish = [&] {
    const f32 sum = Tile::sum_of_one(o_part) * scale;
    if (stores) store(o_next, narrow<T>({sum}));
    o_next += o_step;
  };
#pragma unroll 1
  for (i64 chunk = -Steps::AHEAD; chunk * STEPS < count; ++chunk) {
    const auto* step = chunk < 0 ? nullptr : steps.get(chunk);
    steps.fetch(chunk + Steps::AHEAD);
    if (chunk < 0) continue;
    const i64 left = count - chunk * STEPS;
    if (left <= STEPS) pdl_launch_dependents();
    f32 a[Tile::ROWS];
    Tile::read(step->a(), a);
#pragma unroll 1
    for (int more = (left < STEPS ? static_cast<int>(left) : STEPS) - 1; more >= 0; --more, ++step) {
      f32 a_s[COLS], w[Tile::ROWS], k[Tile::ROWS], v[COLS];
      Tile::read(step->w, w);
      Tile::read(step->k(), k);
      widen(load_shared<COLS>(step->v + warp_column + Tile::column()), v);
      s.dot(a, a_s);
      Tile::sum(a_s);
#pragma unroll
      for (int i = 0; i < Tile::ROWS; ++i) {
        for (int j = 0; j < COLS; ++j) s.s[i][j] = fmaf(w[i], s.s[i][j], k[i] * v[j]);
      }
      f32 b[Tile::ROWS], r[Tile::ROWS];
      Tile::read(step->b(), b);
      Tile::read(step->r(), r);
      Tile::read(step[more > 0].a(), a);
#pragma unroll
      for (int i = 0; i < Tile::ROWS; ++i) {
        for (int j = 0; j < COLS; ++j) s.s[i][j] = fmaf(b[i], a_s[j], s.s[i][j]);
      }
      finish();  // that of the step before
      stores = Tile::owns_sum() && o_column < V;
      s.dot(r, o_part);
    }
  }
  finish();
  if (final_state) s.store_to(final_state + static_cast<i64>(state) * (K * V), column);
}

}  // namespace kiln
