// DeltaPreparation makes a chunk of the delta rule ready: all that does not depend on the state.
//
// Let S be the state before the chunk, d(i) the product of the decays up to token i of the chunk, and d(i, j) = d(i) / d(j).
// The vectors u(i) that the steps write follow from one triangular system:
//
//     u = (I + A)^-1 beta (v - d k^T S),  A(i, j) = beta(i) d(i, j) k(i) . k(j)  for j < i
//     o(i) = d(i) q(i)^T S + sum of d(i, j) (q(i) . k(j)) u(j)  for j <= i
//     next S = d(last) S + sum of d(last, j) k(j) u(j)^T
//
// The preparation computes (I + A)^-1 beta, and the weights d(i, j) q(i) . k(j). Norms of q and k are factors of their
// products, so that q and k stay as TMA brought them. Decays are exponentials of differences of sums of logarithms; the
// differences are never positive.
#pragma once
#include "kiln/hopper/results.cuh"
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/reduce.cuh"
#include "recurrent/chunk/gates.cuh"
#include "recurrent/chunk/panels.cuh"
#include "recurrent/chunk/places.cuh"

namespace kiln {

// Writes the factors that normalise the warp's 16 rows. Sums of squares are the diagonal of the rows' products with
// themselves, for which the left operand has the registers of the right one.
template <typename T, int PANELS>
__device__ __forceinline__ void write_norms(f32 (&norms)[CHUNK], const ChunkPanel<T> (&panels)[PANELS]) {
  const int lane = threadIdx.x % 32, g = lane / 4, first = threadIdx.x / 32 % 4 * 16;
  const int row = first + lane % 16;
  f32 up[4] = {}, down[4] = {};
#pragma unroll
  for (int i = 0; i < PANELS * 4; ++i) {
    u32 a[4];
    load_matrices(a, shared_address(panels[i / 4]) + row * 128 + ((i % 4 * 2 + lane / 16) ^ row % 8) * 16);
    mma<T>(up, a, a[0], a[2]);
    mma<T>(down, a, a[1], a[3]);
  }
  if (lane % 4 == g / 2) {
    norms[first + g] = rsqrt_approx((g % 2 ? up[1] : up[0]) + 1e-6f);
    norms[first + g + 8] = rsqrt_approx((g % 2 ? down[3] : down[2]) + 1e-6f);
  }
}

template <typename T, typename G, typename B, int K, Gate GATE, GateInput GATE_INPUT, Beta BETA,
          BetaInput BETA_INPUT, bool L2NORM>
class DeltaPreparation {
 public:
  // Warpgroup `group` has memories[group], and barrier 1 + group is a barrier of its 128 threads.
  __device__ __forceinline__ DeltaPreparation(PreparationMemory<T, K>* memories, int group,
                                              const ChunkGates<G, B>& gates, f32 scale)
      : memories_(memories), gates_(gates), scale_(scale), group_(group) {}

  // Begins to read the gates and strengths of a chunk, if it exists. One warp reads the gates, and one the strengths; a lane
  // has two neighbouring tokens.
  __device__ __forceinline__ void fetch(const ChunkPlace& chunk) {
    if (chunk.first < 0) return;
    const int thread = threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const i64 token = chunk.first + thread % 32 * 2 + i;
      const i64 at = token * gates_.value_heads + chunk.item.value_head;
      next_[i] = 0;
      if (token >= chunk.item.end) continue;
      if (GATE == Gate::head && thread < 32) next_[i] = load<1>(gates_.g + at).word[0];
      if (BETA == Beta::head && thread / 32 == 1) next_[i] = load<1>(gates_.beta + at).word[0];
    }
    if constexpr (GATE_INPUT != GateInput::log_decay) {
      if (gates_.a_log) a_log_ = load_one(gates_.a_log + chunk.item.value_head);
      if (gates_.dt_bias) bias_ = load_one(gates_.dt_bias + chunk.item.value_head);
    }
  }

  // Makes memory.prepared of a chunk of `count` tokens, whose q and k are there; later rows may hold anything. fetch() was
  // called for this chunk. Calls read() as soon as q and k may be overwritten, and then room(), before it writes where the
  // results of the chunk before are. read() writes the next chunk to `next`, for which make() calls fetch().
  // At the end all threads have met, and the results are ready for copies.
  template <typename Read, typename Room>
  __device__ __forceinline__ void make(int count, Read read, Room room, const ChunkPlace& next) {
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    asm volatile("" : "+r"(group_));  // otherwise addresses are computed ahead of all chunks, and spilled
    if (count < CHUNK) {
      clear_keys(memory().k, count);
      fence_async_shared();
      meet();
    }
    f32 kk[32], qk[32];
    multiply_keys(kk, memory().k);
    multiply_keys(qk, memory().q);
    if (thread < 32) write_gates(count);
    if (thread / 32 == 1) write_beta(count);
    if constexpr (L2NORM) {
      write_norms<T>(memory().k_norm, memory().k);
      write_norms<T>(memory().q_norm, memory().q);
    }
    meet();

    wgmma_wait<1>();
    wgmma_results(kk);
    weigh<true>(kk);
    wgmma_wait<0>();
    wgmma_results(qk);
    weigh<false>(qk);
    u32 attention[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) attention[i] = pack<T>(qk[2 * i], qk[2 * i + 1]);
    meet();
    read();
    room();
    f32 rows[8][4];
#pragma unroll
    for (int i = 0; i < 32; ++i) rows[i / 4][i % 4] = kk[i];
    invert_unit_lower(rows, memory().matrix, 1 + group_);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 beta = *reinterpret_cast<const float2*>(memory().beta + j * 8 + lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) kk[4 * j + e] = rows[j][e] * (e % 2 ? beta.y : beta.x);
    }
    meet();  // no thread needs the matrix
    store_columns<T>(memory().prepared.inverse, kk);
    store_packed_columns(memory().prepared.attention, attention);
    fetch(next);
    if (thread < CHUNK) write_factors(memory().prepared.factors, thread);
    fence_async_shared();
    meet();
  }

 private:
  // Begins d = rows k^T.
  __device__ __forceinline__ void multiply_keys(f32 (&d)[32], const ChunkPanel<T> (&rows)[K / 64]) const {
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < K / 64; ++i) {
      const u64 left = wgmma_operand<128>(rows[i]), right = wgmma_operand<128>(memory().k[i]);
#pragma unroll
      for (int bytes = 0; bytes < 128; bytes += 32)
        wgmma<T, 64>(d, left + wgmma_along(bytes), right + wgmma_along(bytes), i > 0 || bytes > 0);
    }
    wgmma_commit();
  }

  // Writes the sums of logarithms of decays. The warp that fetched the gates calls it.
  __device__ __forceinline__ void write_gates(int count) {
    const int lane = threadIdx.x % 32;
    f32 decay[2] = {};
    const f32 rate = GATE_INPUT != GateInput::log_decay && gates_.a_log ? expf(a_log_) : 1.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (GATE == Gate::head && lane * 2 + i < count)
        decay[i] = log2_decay_of<GATE_INPUT>(fetched<G>(i) + bias_, rate, gates_.lower_bound);
    }
    f32 sum = decay[0] + decay[1];
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const f32 before = __shfl_up_sync(~0u, sum, lanes);
      if (lane >= lanes) sum += before;
    }
    f32 before = __shfl_up_sync(~0u, sum, 1);
    if (lane == 0) before = 0.0f;
    reinterpret_cast<float2*>(memory().gate)[lane] = make_float2(before + decay[0], sum);
  }
  // Writes the strengths. The warp that fetched them calls it.
  __device__ __forceinline__ void write_beta(int count) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      f32 beta = lane * 2 + i < count ? 1.0f : 0.0f;
      if (BETA == Beta::head && lane * 2 + i < count) beta = beta_of<BETA_INPUT>(fetched<B>(i));
      memory().beta[lane * 2 + i] = beta;
    }
  }
  template <typename E>
  __device__ __forceinline__ f32 fetched(int i) const {
    Vec<E, 1> v;
    v.word[0] = next_[i];
    return float_of(v);
  }

  __device__ __forceinline__ f32 k_norm(int row) const { return L2NORM ? memory().k_norm[row] : 1.0f; }
  __device__ __forceinline__ f32 q_norm(int row) const { return L2NORM ? memory().q_norm[row] : 1.0f; }

  __device__ __forceinline__ void write_factors(ChunkFactors& factors, int row) const {
    const f32 gate = memory().gate[row], whole = memory().gate[CHUNK - 1], decay = exp2_approx(gate);
    factors.key[row] = decay * k_norm(row);
    factors.query[row] = decay * q_norm(row) * scale_;
    factors.write[row] = exp2_approx(whole - gate) * k_norm(row);
    if (row == 0) factors.kept = exp2_approx(whole);
  }

  // Turns products of keys, k k^T, into A, or products of queries, q k^T, into weights. Rows of q after the chunk's last
  // token may be NaN; their weights belong to outputs that are not stored.
  //
  // Left of a warp's diagonal block, a decay is the product of the decay from the column to the block's first row, and of
  // the decay from there. This takes fewer exponentials.
  template <bool KEYS>
  __device__ __forceinline__ void weigh(f32 (&d)[32]) const {
    constexpr bool GATED = GATE == Gate::head;
    int column = threadIdx.x % 4 * 2;
    const int row = wgmma_row();
    asm volatile("" : "+r"(column));
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0);
    const f32 before = GATED && warp > 0 ? memory().gate[warp * 16 - 1] : 0.0f;
    f32 gate[2], near[2], far[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      gate[h] = GATED ? memory().gate[row + h * 8] : 0.0f;
      near[h] = KEYS ? memory().beta[row + h * 8] * k_norm(row + h * 8) : q_norm(row + h * 8) * scale_;
      far[h] = near[h] * (GATED ? exp2_approx(gate[h] - before) : 1.0f);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float2 gates = make_float2(0.0f, 0.0f), factors = make_float2(1.0f, 1.0f);
      if (j / 2 <= warp) {
        if constexpr (GATED) gates = *reinterpret_cast<const float2*>(memory().gate + j * 8 + column);
        if constexpr (L2NORM) factors = *reinterpret_cast<const float2*>(memory().k_norm + j * 8 + column);
      }
      if (j / 2 < warp) {
        if constexpr (GATED) {
          factors.x *= exp2_approx(before - gates.x);
          factors.y *= exp2_approx(before - gates.y);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) d[4 * j + e] *= far[e / 2] * (e % 2 ? factors.y : factors.x);
      } else if (j / 2 == warp) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int right = row + e / 2 * 8 - (j * 8 + column + e % 2);
          f32 factor = near[e / 2] * (e % 2 ? factors.y : factors.x);
          if constexpr (GATED)
            factor *= exp2_approx(right >= 0 ? gate[e / 2] - (e % 2 ? gates.y : gates.x) : 0.0f);
          d[4 * j + e] = right >= (KEYS ? 1 : 0) ? d[4 * j + e] * factor : 0.0f;
        }
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) d[4 * j + e] = 0.0f;
      }
    }
  }

  __device__ __forceinline__ PreparationMemory<T, K>& memory() const { return memories_[group_]; }
  __device__ __forceinline__ void meet() const { sync_threads(1 + group_, 128); }

  PreparationMemory<T, K>* const memories_;
  const ChunkGates<G, B> gates_;
  const f32 scale_;
  int group_;
  u32 next_[2];  // a gate or a strength as it was read, because a conversion would wait for it
  f32 a_log_ = 0.0f, bias_ = 0.0f;
};

}  // namespace kiln
