// KeyPreparation is DeltaPreparation for a gate of each key channel (Kimi Delta Attention).
//
// With d(i) the vector of products of the decays up to token i of the chunk, one for each channel c, and d(i, j) = d(i) / d(j):
//
//     A(i, j) = beta(i) sum over c of k(i) d(i, j) k(j),  weights of outputs: sum over c of q(i) d(i, j) k(j)
//     k of products with S: d(i) k(i),  q: d(i) q(i),  k of writes: d(last, j) k(j)
//
// The chunk has four blocks of 16 tokens, one for each warp. A thread computes two exponentials for an element: the decays from
// the first token of its block, and to the last one. All other decays are products with decays over whole blocks:
// - Columns left of a warp's diagonal block: k(j) has the decay to the end of j's block, which is one right operand for all
//   warps. The left operand has the decay from there.
// - The diagonal block, if no channel decays much within it: the left operand also has the inverse of the block's decay.
// - Otherwise the rows of the diagonal block are halved until a half is one row. A decay is then the exponential of a difference
//   of sums of logarithms that is never positive, so that nothing overflows.
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

  // Begins to read the gates and strengths of a chunk, if it exists.
  __device__ __forceinline__ void fetch(const ChunkPlace& chunk) {
    if (chunk.first < 0) return;
    const int thread = threadIdx.x % 128;
    const i64 stride = gates_.value_heads, at = chunk.first * stride + chunk.item.value_head;
    head_ = chunk.item.value_head;
    next_ = smaller(CHUNK, chunk.item.end - chunk.first);
    raw_beta_ = 0;
    if (BETA == Beta::head && thread < next_) raw_beta_ = load<1>(gates_.beta + at + thread * stride).word[0];
    if (thread >= K) return;
    const G* g = gates_.g + at * K + thread;
#pragma unroll
    for (int i = 0; i < CHUNK; ++i, g += stride * K) {
      raw_[i] = 0;
      if (i < next_) raw_[i] = load<1>(g).word[0];
    }
  }

  // Writes the gates and strengths of the chunk of fetch(). The threads meet in make().
  __device__ __forceinline__ void write_gates() {
    const int thread = threadIdx.x % 128;
    f32 beta = thread < next_ ? 1.0f : 0.0f;
    if (BETA == Beta::head && thread < next_) beta = beta_of<BETA_INPUT>(value_of<B>(raw_beta_));
    if (thread < CHUNK) memory_.beta[thread] = beta;
    if (thread < K) sum_gates(thread);
  }

  // Makes memory.prepared of a chunk of `count` tokens, whose q and k are there, in its place; later rows may hold anything.
  // write_gates() was called for this chunk. find() writes the next chunk to `next`, for which make() calls fetch(). At the end
  // all threads have met, and the results are ready for copies.
  template <typename Find>
  __device__ __forceinline__ void make(int count, Find find, const ChunkPlace& next) {
    KeyPreparedChunk<T, K>& prepared = memory_.prepared;
    if (count < CHUNK) clear_keys(prepared.k, count);
    meet();
    find();
    if constexpr (L2NORM) {
      write_norms<T>(memory_.k_norm, prepared.k);
      write_norms<T>(memory_.q_norm, prepared.q);
      __syncwarp();  // a warp needs the norms of its own rows alone
    }
    if (static_cast<int>(threadIdx.x) % 128 < K)
      prepared.kept[threadIdx.x % 128] = memory_.kept[threadIdx.x % 128];
    f32 kk[8][4] = {}, qk[8][4] = {};
    if (mild()) {
      decay_to_the_end<true>(kk, qk);
    } else {
      multiply_diagonal(kk, qk);
      decay_to_the_end<false>(kk, qk);
    }
    meet();  // all right operands are there
    multiply_left(kk, qk);
    weigh(kk, qk);
    meet();  // no thread needs the gates, or right operands
    fetch(next);
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
    store_columns<T>(prepared.inverse, inverse);
    store_columns<T>(prepared.attention, attention);
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
  using Panels = ChunkPanel<T>[K / 64];
  // Returns the address of the lane's row in an access to four matrices: 16 rows of 16 channels. They are the left operand of a
  // product over channels, or two right ones: registers 0 and 2, and 1 and 3. Register r has rows g + r % 2 * 8, and channels
  // 2t + r / 2 * 8 and the next one.
  __device__ static __forceinline__ u32 address(const Panels& panels, int first_row, int i) {
    const int lane = threadIdx.x % 32, row = first_row + lane % 16;
    return shared_address(panels[i / 4]) + row * 128 + ((i % 4 * 2 + lane / 16) ^ row % 8) * 16;
  }
  __device__ static __forceinline__ void read(u32 (&a)[4], const Panels& panels, int first_row, int i) {
    load_matrices(a, address(panels, first_row, i));
  }
  __device__ static __forceinline__ void write(Panels& panels, int first_row, int i, const u32 (&a)[4]) {
    store_matrices(address(panels, first_row, i), a);
  }
  // The right operands: k with the decay to the end of its block. They lie where the results will be.
  __device__ __forceinline__ Panels& rights() const {
    return *reinterpret_cast<Panels*>(&memory_.prepared.inverse);
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
  __device__ static __forceinline__ float2 two(const f32* from) {
    return *reinterpret_cast<const float2*>(from);
  }
  __device__ static __forceinline__ float2 times(float2 a, float2 b) {
    return make_float2(a.x * b.x, a.y * b.y);
  }
  __device__ static __forceinline__ float2 times(float2 a, f32 b) { return make_float2(a.x * b, a.y * b); }
  __device__ static __forceinline__ float2 widened(u32 pair) {
    Vec<T, 2> v;
    v.word[0] = pair;
    f32 x[2];
    widen(v, x);
    return make_float2(x[0], x[1]);
  }
  __device__ static __forceinline__ u32 packed(float2 x) { return pack<T>(x.x, x.y); }
  // The factors that replace q and k of the thread's two rows.
  struct Norms {
    f32 q[2], k[2];
  };
  __device__ __forceinline__ Norms norms() const {
    Norms n;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      n.q[h] = L2NORM ? memory_.q_norm[wgmma_row() + h * 8] * scale_ : scale_;
      n.k[h] = L2NORM ? memory_.k_norm[wgmma_row() + h * 8] : 1.0f;
    }
    return n;
  }

  // Sums the logarithms of one channel's decays, and writes its products over blocks.
  __device__ __forceinline__ void sum_gates(int channel) {
    const i64 bias_at = static_cast<i64>(head_) * K + channel;
    const f32 bias =
        GATE_INPUT != GateInput::log_decay && gates_.dt_bias ? load_one(gates_.dt_bias + bias_at) : 0.0f;
    const f32 rate =
        GATE_INPUT != GateInput::log_decay && gates_.a_log ? expf(load_one(gates_.a_log + head_)) : 1.0f;
    f32 sums[4];
#pragma unroll
    for (int block = 0; block < 4; ++block) {
      f32 sum = 0.0f;
#pragma unroll
      for (int i = block * 16; i < block * 16 + 16; ++i) {
        const f32 log = log2_decay_of<GATE_INPUT>(value_of<G>(raw_[i]) + bias, rate, gates_.lower_bound);
        sum += GATE_INPUT == GateInput::log_decay || i < next_ ? log : 0.0f;
        memory_.gate[i][channel] = sum;
      }
      sums[block] = sum;
      memory_.whole[block][channel] = exp2_approx(sum);
      memory_.grown[block][channel] = exp2_approx(-sum);
    }
    f32 after = 0.0f;
#pragma unroll
    for (int block = 3; block >= 0; --block) {
      memory_.after[block][channel] = exp2_approx(after);
      after += sums[block];
    }
    memory_.kept[channel] = exp2_approx(after);
  }

  // Returns true, for the whole warp, if no channel decays so much within the warp's block that its inverse leaves the range in
  // which T is precise.
  __device__ __forceinline__ bool mild() const {
    constexpr f32 RANGE = same<T, f16> ? 8.0f : 80.0f;
    bool all = true;
    for (int channel = threadIdx.x % 32; channel < K; channel += 32)
      all &= memory_.gate[warp() * 16 + 15][channel] >= -RANGE;
    return __all_sync(~0u, all);
  }

  // Writes the right operands of the warp's block, and the tile k of writes. With DIAGONAL the warp also computes the products in
  // its diagonal block.
  template <bool DIAGONAL>
  __device__ __forceinline__ void decay_to_the_end(f32 (&kk)[8][4], f32 (&qk)[8][4]) const {
    const int own = warp() * 16;
    const Norms norm = norms();
    f32 dk[2][4] = {}, dq[2][4] = {};
#pragma unroll 2
    for (int i = 0; i < K / 16; ++i) {
      u32 k[4], q[4], right[4], writes[4];
      read(k, memory_.prepared.k, own, i);
      if (DIAGONAL) read(q, memory_.prepared.q, own, i);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int channel = channel_of(r, i);
        const float2 sum = gates(own + row_of(r), channel), end = gates(own + 15, channel);
        const float2 row = times(widened(k[r]), norm.k[r % 2]), to_end = times(row, decay(end, sum));
        right[r] = packed(to_end);
        writes[r] = packed(times(to_end, two(&memory_.after[own / 16][channel])));
        if (DIAGONAL) {
          const float2 by =
              times(decay(sum, make_float2(0.0f, 0.0f)), two(&memory_.grown[own / 16][channel]));
          k[r] = packed(times(row, by));
          q[r] = packed(times(widened(q[r]), times(by, norm.q[r % 2])));
        }
      }
      write(rights(), own, i, right);
      write(memory_.prepared.w, own, i, writes);
      if (DIAGONAL) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          mma<T>(dk[h], k, right[h], right[h + 2]);
          mma<T>(dq[h], q, right[h], right[h + 2]);
        }
      }
    }
    if (DIAGONAL) put_diagonal(kk, qk, dk, dq);
  }
  __device__ static __forceinline__ void put_diagonal(f32 (&kk)[8][4], f32 (&qk)[8][4], const f32 (&dk)[2][4],
                                                      const f32 (&dq)[2][4]) {
    const int own = warp() * 2;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (j / 2 * 2 != own) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) kk[j][e] = dk[j % 2][e], qk[j][e] = dq[j % 2][e];
    }
  }

  // Products left of the warp's diagonal block. Turns the warp's rows of q and k into tiles of the walk.
  __device__ __forceinline__ void multiply_left(f32 (&kk)[8][4], f32 (&qk)[8][4]) const {
    const int own = warp() * 16;
    const Norms norm = norms();
#pragma unroll 1
    for (int i = 0; i < K / 16; ++i) {
      u32 k[4], q[4];
      read(k, memory_.prepared.k, own, i);
      read(q, memory_.prepared.q, own, i);
      float2 row_k[4], row_q[4];  // with decays from the first token of the block
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float2 by = decay(gates(own + row_of(r), channel_of(r, i)), make_float2(0.0f, 0.0f));
        row_k[r] = times(widened(k[r]), times(by, norm.k[r % 2]));
        row_q[r] = times(widened(q[r]), times(by, norm.q[r % 2]));
      }
      float2 since[2] = {make_float2(1.0f, 1.0f),
                         make_float2(1.0f, 1.0f)};  // decays of the blocks after block j
      const auto put = [&] {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          k[r] = packed(times(row_k[r], since[r / 2]));
          q[r] = packed(times(row_q[r], since[r / 2]));
        }
      };
#pragma unroll
      for (int j = 2; j >= 0; --j) {
        if (j * 16 >= own) continue;
        u32 right[4];
        read(right, rights(), j * 16, i);
        put();
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          since[h] = times(since[h], two(&memory_.whole[j][channel_of(2 * h, i)]));
          mma<T>(kk[2 * j + h], k, right[h], right[h + 2]);
          mma<T>(qk[2 * j + h], q, right[h], right[h + 2]);
        }
      }
      put();
      write(memory_.prepared.k, own, i, k);
      write(memory_.prepared.q, own, i, q);
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
    const Norms norm = norms();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const f32 column = L2NORM ? memory_.k_norm[own + h * 8 + lane % 4 * 2 + e % 2] : 1.0f;
        dk[h][e] *= norm.k[e / 2] * column, dq[h][e] *= norm.q[e / 2] * column;
      }
    }
    put_diagonal(kk, qk, dk, dq);
  }

  // Turns the products into A. Products with later tokens become zeros.
  __device__ __forceinline__ void weigh(f32 (&kk)[8][4], f32 (&qk)[8][4]) const {
    const int row = wgmma_row(), column = threadIdx.x % 4 * 2;
    const f32 beta[2] = {memory_.beta[row], memory_.beta[row + 8]};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int right = row + e / 2 * 8 - (j * 8 + column + e % 2);
        kk[j][e] = right > 0 ? kk[j][e] * beta[e / 2] : 0.0f;
        qk[j][e] = right >= 0 ? qk[j][e] : 0.0f;
      }
    }
  }

  KeyPreparationMemory<T, K>& memory_;
  const ChunkGates<G, B> gates_;
  const f32 scale_;
  const int group_;
  // fetch() reads these of a chunk: the value head, the number of tokens, the gates and a strength. The last two stay as they were
  // read, because a conversion would wait for them.
  int head_, next_;
  u32 raw_[CHUNK], raw_beta_;
};

}  // namespace kiln
