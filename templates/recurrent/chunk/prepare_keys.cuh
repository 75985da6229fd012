// KeyPreparation is DeltaPreparation for a gate of each key channel (Kimi Delta Attention).
//
// With d(i) the vector of products of the decays up to token i of the chunk, one for each channel c, and d(i, j) = d(i) / d(j):
//
//     A(i, j) = beta(i) sum over c of k(i) d(i, j) k(j),  weights of outputs: sum over c of q(i) d(i, j) k(j)
//     k of products with S: d(i) k(i),  q: d(i) q(i),  k of writes: d(last, j) k(j)
//
// All three are tiles for the walk. A decay is the exponential of a difference of sums of logarithms that is never positive, so
// that nothing overflows. Products over channels have d(i, j) as d(i, m) d(m, j), with a token m between j and i:
// - The last token before the 16 rows of a warp, for columns left of the warp's diagonal block.
// - In the diagonal block, the rows are halved until a half is one row, and m is the last row of an upper half.
#pragma once
#include "recurrent/chunk/prepare.cuh"

namespace kiln {

// REQUIRES: the threads of the warpgroup call all functions together.
template <typename T, typename G, typename B, int K, GateInput GATE_INPUT, Beta BETA, BetaInput BETA_INPUT,
          bool L2NORM>
class KeyPreparation {
 public:
  // Warpgroup `group` has memories[group], and barrier 1 + group is a barrier of its 128 threads.
  __device__ __forceinline__ KeyPreparation(KeyPreparationMemory<T, K>* memories, int group,
                                            const ChunkGates<G, B>& gates, f32 scale)
      : memory_(memories[group]), gates_(gates), scale_(scale), group_(group) {}

  // Reads the gates and strengths of a chunk.
  __device__ __forceinline__ void read_gates(const ChunkPlace& chunk) {
    constexpr int TOGETHER = 32;
    const int thread = threadIdx.x % 128, head = chunk.item.value_head;
    if (thread < K) {
      const i64 bias_at = static_cast<i64>(head) * K + thread;
      const f32 bias =
          GATE_INPUT != GateInput::log_decay && gates_.dt_bias ? load_one(gates_.dt_bias + bias_at) : 0.0f;
      const f32 rate =
          GATE_INPUT != GateInput::log_decay && gates_.a_log ? expf(load_one(gates_.a_log + head)) : 1.0f;
      f32 sum = 0.0f;
#pragma unroll 1
      for (int first = 0; first < CHUNK; first += TOGETHER) {
        u32 raw[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
          const i64 token = chunk.first + first + i;
          raw[i] = 0;
          if (token < chunk.item.end)
            raw[i] = load<1>(gates_.g + (token * gates_.value_heads + head) * K + thread).word[0];
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
          if (chunk.first + first + i < chunk.item.end)
            sum += log2_decay_of<GATE_INPUT>(value_of<G>(raw[i]) + bias, rate, gates_.lower_bound);
          memory_.gate[first + i][thread] = sum;
        }
      }
    }
    if (thread < CHUNK) {
      const i64 token = chunk.first + thread;
      f32 beta = token < chunk.item.end ? 1.0f : 0.0f;
      if (BETA == Beta::head && token < chunk.item.end)
        beta = beta_of<BETA_INPUT>(
            value_of<B>(load<1>(gates_.beta + token * gates_.value_heads + head).word[0]));
      memory_.beta[thread] = beta;
    }
  }

  // Makes memory.prepared of a chunk of `count` tokens, whose q and k are there, in its place; later rows may hold anything.
  // read_gates() was called for this chunk. At the end all threads have met, and the results are ready for copies.
  __device__ __forceinline__ void make(int count) {
    KeyPreparedChunk<T, K>& prepared = memory_.prepared;
    if (count < CHUNK) clear_keys(prepared.k, count);
    meet();
    if constexpr (L2NORM) {
      write_norms<T>(memory_.k_norm, prepared.k);
      write_norms<T>(memory_.q_norm, prepared.q);
      meet();
    }
    f32 kk[8][4] = {}, qk[8][4] = {};
    multiply_left(kk, qk);
    multiply_diagonal(kk, qk);
    weigh(kk, qk);
    invert_unit_lower(kk, memory_.matrix(), 1 + group_);
    const int lane = threadIdx.x % 32;
    f32 inverse[32], attention[32];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 beta = *reinterpret_cast<const float2*>(memory_.beta + j * 8 + lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        inverse[4 * j + e] = kk[j][e] * (e % 2 ? beta.y : beta.x);
        attention[4 * j + e] = qk[j][e];
      }
    }
    meet();  // no thread needs the matrix
    store_columns<T>(prepared.inverse, inverse);
    store_columns<T>(prepared.attention, attention);
    scale_tiles();
    fence_async_shared();
    meet();
  }

 private:
  __device__ __forceinline__ void meet() const { sync_threads(1 + group_, 128); }
  template <typename E>
  __device__ static __forceinline__ f32 value_of(u32 word) {
    Vec<E, 1> v;
    v.word[0] = word;
    return float_of(v);
  }
  __device__ static __forceinline__ u32 scaled(u32 pair, float2 by) {
    Vec<T, 2> v;
    v.word[0] = pair;
    f32 x[2];
    widen(v, x);
    return pack<T>(x[0] * by.x, x[1] * by.y);
  }
  __device__ __forceinline__ float2 gates(int row, int channel) const {
    return *reinterpret_cast<const float2*>(&memory_.gate[row][channel]);
  }
  // Returns the decay from one token to another: the exponential of the difference.
  __device__ static __forceinline__ float2 decay(float2 to, float2 from) {
    return make_float2(exp2_approx(to.x - from.x), exp2_approx(to.y - from.y));
  }
  // Reads 16 rows of 16 channels, as the left operand of a product over channels, or as two right ones: 0 and 2, 1 and 3.
  // Register r has rows g + r % 2 * 8, and channels 2t + r / 2 * 8 and the next one.
  __device__ static __forceinline__ void read(u32 (&a)[4], const ChunkPanel<T> (&panels)[K / 64],
                                              int first_row, int i) {
    const int lane = threadIdx.x % 32, row = first_row + lane % 16;
    load_matrices(a, shared_address(panels[i / 4]) + row * 128 + ((i % 4 * 2 + lane / 16) ^ row % 8) * 16);
  }
  __device__ static __forceinline__ int warp() {
    return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  }
  __device__ static __forceinline__ int row_of(int r) {  // of register r, in its 16 rows
    return static_cast<int>(threadIdx.x) % 32 / 4 + r % 2 * 8;
  }
  __device__ static __forceinline__ int channel_of(int r, int i) {
    return i * 16 + r / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
  }

  // Products left of the warp's diagonal block.
  __device__ __forceinline__ void multiply_left(f32 (&kk)[8][4], f32 (&qk)[8][4]) const {
    const int own = warp() * 16;
    if (own == 0) return;
#pragma unroll 2
    for (int i = 0; i < K / 16; ++i) {
      u32 k[4], q[4];
      read(k, memory_.prepared.k, own, i);
      read(q, memory_.prepared.q, own, i);
      float2 before[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) before[h] = gates(own - 1, channel_of(2 * h, i));
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float2 by = decay(gates(own + row_of(r), channel_of(r, i)), before[r / 2]);
        k[r] = scaled(k[r], by);
        q[r] = scaled(q[r], by);
      }
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        if (j * 16 >= own) break;
        u32 right[4];
        read(right, memory_.prepared.k, j * 16, i);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          right[r] = scaled(right[r], decay(before[r / 2], gates(j * 16 + row_of(r), channel_of(r, i))));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          mma<T>(kk[2 * j + h], k, right[h], right[h + 2]);
          mma<T>(qk[2 * j + h], q, right[h], right[h + 2]);
        }
      }
    }
  }

  // Products in the warp's diagonal block. In each round, rows of lower halves meet rows of the upper halves above them.
  __device__ __forceinline__ void multiply_diagonal(f32 (&kk)[8][4], f32 (&qk)[8][4]) const {
    const int own = warp() * 16, lane = threadIdx.x % 32;
    f32 dk[2][4] = {}, dq[2][4] = {};
#pragma unroll 1
    for (int half = 8; half >= 0; half /= 2) {
      f32 tk[2][4] = {}, tq[2][4] = {};
#pragma unroll 2
      for (int i = 0; i < K / 16; ++i) {
        u32 k[4], q[4], right[4];
        read(k, memory_.prepared.k, own, i);
        read(q, memory_.prepared.q, own, i);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          right[r] = k[r];
          if (half == 0) continue;  // the last round: a row meets itself
          const int row = row_of(r), channel = channel_of(r, i), middle = (row & -2 * half) + half - 1;
          const bool lower = (row & half) != 0;
          const float2 at = gates(own + row, channel), between = gates(own + middle, channel);
          const float2 by = lower ? decay(at, between) : decay(between, at);
          right[r] = lower ? 0 : scaled(k[r], by);
          k[r] = lower ? scaled(k[r], by) : 0;
          q[r] = lower ? scaled(q[r], by) : 0;
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          mma<T>(tk[h], k, right[h], right[h + 2]);
          mma<T>(tq[h], q, right[h], right[h + 2]);
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = lane / 4 + e / 2 * 8, column = h * 8 + lane % 4 * 2 + e % 2;
          const bool meet = half == 0
                                ? row == column
                                : (row ^ column) < 2 * half && (row & half) != 0 && (column & half) == 0;
          if (meet) dk[h][e] = tk[h][e], dq[h][e] = tq[h][e];
        }
      }
      if (half == 0) break;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (j / 2 * 16 != own) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) kk[j][e] = dk[j % 2][e], qk[j][e] = dq[j % 2][e];
    }
  }

  // Turns the products into A, and into weights.
  __device__ __forceinline__ void weigh(f32 (&kk)[8][4], f32 (&qk)[8][4]) const {
    const int row = wgmma_row(), column = threadIdx.x % 4 * 2;
    f32 a[2], weight[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      a[h] = memory_.beta[row + h * 8] * (L2NORM ? memory_.k_norm[row + h * 8] : 1.0f);
      weight[h] = scale_ * (L2NORM ? memory_.q_norm[row + h * 8] : 1.0f);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int right = row + e / 2 * 8 - (j * 8 + column + e % 2);
        const f32 norm = L2NORM ? memory_.k_norm[j * 8 + column + e % 2] : 1.0f;
        kk[j][e] = right > 0 ? kk[j][e] * (a[e / 2] * norm) : 0.0f;
        qk[j][e] = right >= 0 ? qk[j][e] * (weight[e / 2] * norm) : 0.0f;
      }
    }
  }

  // Turns q and k into the tiles of the walk.
  __device__ __forceinline__ void scale_tiles() {
    KeyPreparedChunk<T, K>& prepared = memory_.prepared;
    const int thread = threadIdx.x % 128;
#pragma unroll 1
    for (int at = thread; at < CHUNK * K / 8; at += 128) {
      const int row = at / (K / 8), part = at % (K / 8), place = row * 128 + (part % 8 ^ row % 8) * 16;
      const auto words = [&](ChunkPanel<T>(&panels)[K / 64]) {
        return reinterpret_cast<u32*>(reinterpret_cast<u8*>(panels[part / 8]) + place);
      };
      u32 *const q = words(prepared.q), *const k = words(prepared.k), *const w = words(prepared.w);
      const f32 k_norm = L2NORM ? memory_.k_norm[row] : 1.0f,
                q_norm = scale_ * (L2NORM ? memory_.q_norm[row] : 1.0f);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 gate = gates(row, part * 8 + i * 2), end = gates(CHUNK - 1, part * 8 + i * 2);
        const float2 from = decay(gate, make_float2(0.0f, 0.0f)), to = decay(end, gate);
        w[i] = scaled(k[i], make_float2(to.x * k_norm, to.y * k_norm));
        k[i] = scaled(k[i], make_float2(from.x * k_norm, from.y * k_norm));
        q[i] = scaled(q[i], make_float2(from.x * q_norm, from.y * q_norm));
      }
    }
    if (thread < K) prepared.kept[thread] = exp2_approx(memory_.gate[CHUNK - 1][thread]);
  }

  KeyPreparationMemory<T, K>& memory_;
  const ChunkGates<G, B> gates_;
  const f32 scale_;
  const int group_;
};

}  // namespace kiln
