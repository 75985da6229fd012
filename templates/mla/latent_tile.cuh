// A warpgroup's half of a tile of attention over a latent cache (sm_90a).
//
// A tile has 64 packed rows. Two warpgroups, the left (SIDE 0) and the right (SIDE 1) one, have all of these rows, and 256 of
// the 512 output columns each. A stage of shared memory has a kv block of 64 rows. The left warpgroup owns stage 0, and the
// right one stage 1. The owner computes the weights of a kv block from all 576 columns. Both warpgroups then multiply the
// weights with their own columns of the kv block.
//
// The weights go to the other warpgroup through the last panel of the stage: its keys are not needed any more, and it holds no
// values. Thread t of one warpgroup and thread t of the other have the same rows and columns of the weights, so each thread
// reads what its twin wrote.
#pragma once
#include "attention/prefill/wgmma_tile.cuh"

namespace kiln {

struct Latent {
  enum : int {
    VALUES = 512,
    KEYS = 576,
    BLOCK = 64
  };  // elements of a row: values, all keys; rows of a kv block
  enum : int { PANELS = KEYS / 64, SIDE_PANELS = VALUES / 128 };
  enum : int {
    LEFT,
    RIGHT,
    LAST,
    PARTS
  };  // parts of a stage that are released apart: panels 0 to 3, 4 to 7, and 8

  __device__ static constexpr int begin_of(int part) {
    return part == LAST ? PANELS - 1 : part * SIDE_PANELS;
  }
  __device__ static constexpr int end_of(int part) {
    return part == LAST ? PANELS : (part + 1) * SIDE_PANELS;
  }
};

// The shared memory of both warpgroups and of the loader.
template <typename T>
struct LatentStages {
  Panel<T, 64> q[Latent::PANELS];  // then the results
  Panel<T, 64> k[2][Latent::PANELS];
  Barrier full[2][Latent::PANELS], empty[2][Latent::PARTS];
  Barrier weighed[2];  // the owner has written the weights and the shifts
  f32 shift[2][64];    // of the rows, as the weights have it
  f32 sums[2][64];     // of the weights of each side's kv blocks

  // One thread calls it. `fills`: arrivals that fill a panel.
  __device__ __forceinline__ void init(u32 fills) {
    for (int stage = 0; stage < 2; ++stage) {
      for (Barrier& b : full[stage]) b.init(fills);
      for (Barrier& b : empty[stage]) b.init(4);  // each warp of one warpgroup releases a part
      weighed[stage].init(4);
    }
    barriers_ready();
    fence_async_shared();
  }
};

template <typename T>
struct LatentTile : WgmmaTile<T, Latent::KEYS, Latent::VALUES / 2, Latent::BLOCK> {
  using Weights = u32[4][4];
  using Values = Panel<T, 64>[Latent::SIDE_PANELS];

  LatentStages<T>& shared;
  u32 parity = 0;  // bit i: of the rounds through stage i
  Weights others;  // the weights of the other warpgroup's kv block

  __device__ __forceinline__ explicit LatentTile(LatentStages<T>& stages) : shared(stages) {}

  // The barrier of the side's warpgroup.
  template <int SIDE>
  __device__ static __forceinline__ void meet() {
    sync_threads(2 + SIDE, 128);
  }

  // Begins s = q k^T for the kv block of the own stage. The products begin as panels arrive.
  template <int OWN>
  __device__ __forceinline__ void multiply_keys() {
#pragma unroll
    for (int i = 0; i < Latent::PANELS; ++i) {
      shared.full[OWN][i].wait(parity >> OWN & 1);
      wgmma_begin();
      const u64 left = wgmma_operand<128>(shared.q[i]), right = wgmma_operand<128>(shared.k[OWN][i]);
#pragma unroll
      for (int bytes = 0; bytes < 128; bytes += 32)
        wgmma<T, Latent::BLOCK>(this->s, left + wgmma_along(bytes), right + wgmma_along(bytes),
                                i > 0 || bytes > 0);
    }
    wgmma_commit();
  }

  // Gives the rounded weights and the shifts to the other warpgroup. REQUIRES: meet() since the product with the keys ended.
  template <int OWN>
  __device__ __forceinline__ void give_weights() {
    const int thread = threadIdx.x % 128;
    uint4* const to = reinterpret_cast<uint4*>(shared.k[OWN][Latent::PANELS - 1]);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[i * 128 + thread] = make_uint4(this->p[i][0], this->p[i][1], this->p[i][2], this->p[i][3]);
    if (thread % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) shared.shift[OWN][wgmma_row() + 8 * h] = this->row[h].shift;
    }
    fence_async_shared();  // TMA later writes there
    __syncwarp();
    if (thread % 32 == 0) shared.weighed[OWN].arrive();
  }

  // Takes the weights of the other stage's kv block. Returns whether the shift of a row of the warp has risen; `factor` is then
  // what the weighted sums have to be multiplied with.
  template <int OTHER>
  __device__ __forceinline__ bool take_weights(f32 (&factor)[2]) {
    const int thread = threadIdx.x % 128;
    shared.weighed[OTHER].wait(parity >> OTHER & 1);
    const uint4* const from = reinterpret_cast<const uint4*>(shared.k[OTHER][Latent::PANELS - 1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 x = from[i * 128 + thread];
      others[i][0] = x.x, others[i][1] = x.y, others[i][2] = x.z, others[i][3] = x.w;
    }
    bool risen = false;
    f32 shift[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      shift[h] = shared.shift[OTHER][wgmma_row() + 8 * h];
      risen |= shift[h] != this->row[h].shift;
    }
    __syncwarp();
    release(OTHER, Latent::LAST);
    if (!__any_sync(0xffffffffu, risen)) return false;
#pragma unroll
    for (int h = 0; h < 2; ++h) factor[h] = this->row[h].rescale(shift[h]);
    return true;
  }

  // Begins sums += weights v for the stage's kv block, of which `left` rows are tokens. The rows after them may hold anything, NaN
  // too, and the weights there are 0, so these rows become zeros. REQUIRES: the keys of the kv block are not needed any more.
  template <int SIDE>
  __device__ __forceinline__ void multiply_values(int stage, Weights& weights, i32 left) {
    Values& v = reinterpret_cast<Values&>(shared.k[stage][SIDE * Latent::SIDE_PANELS]);
    if (stage != SIDE) {
#pragma unroll
      for (int i = 0; i < Latent::SIDE_PANELS; ++i)
        shared.full[stage][SIDE * Latent::SIDE_PANELS + i].wait(parity >> stage & 1);
    }
    if (left < Latent::BLOCK) {
      for (int at = left * 8 + threadIdx.x % 128; at < Latent::BLOCK * 8; at += 128) {
#pragma unroll
        for (int i = 0; i < Latent::SIDE_PANELS; ++i)
          reinterpret_cast<uint4*>(v[i])[at] = make_uint4(0, 0, 0, 0);
      }
      fence_async_shared();
      meet<SIDE>();
    }
    wgmma_registers(this->sums);
    wgmma_registers(weights);
    wgmma_begin();
    const u64 right = wgmma_operand_along_n(v, Latent::BLOCK * 128);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma<T, Latent::VALUES / 2>(this->sums, weights[i], right + wgmma_along(i * 16 * 128), true);
    wgmma_commit();
  }

  // The warp needs this part of the stage no more.
  __device__ __forceinline__ void release(int stage, int part) {
    if (threadIdx.x % 32 == 0) shared.empty[stage][part].arrive();
  }

  // Turns the products with the own kv block into weights, gives these away, and begins the product with its values. The kv
  // block has `left` tokens. make_logits() turns products into logits, and returns whether a row has outgrown its shift.
  // sums_end() waits for a product with `sums` that is under way.
  template <int SIDE, typename F, typename G>
  __device__ __forceinline__ void weigh_own(i32 left, f32 scale, const F& make_logits, const G& sums_end) {
    f32 factor[2];
    meet<SIDE>();  // the keys of the last panel have been read
    wgmma_results(this->s);
    const bool outgrown = make_logits();
    if (outgrown) this->raise_shifts(factor);
    this->weigh(scale);
    this->pack_weights();
    give_weights<SIDE>();
    sums_end();
    if (outgrown) this->rescale_sums(factor);
    multiply_values<SIDE>(SIDE, this->p, left);
  }
  // Begins the product with the values of the other warpgroup's kv block.
  template <int SIDE, typename G>
  __device__ __forceinline__ void multiply_others(i32 left, const G& sums_end) {
    f32 factor[2];
    const bool risen = take_weights<1 - SIDE>(factor);
    sums_end();
    if (risen) {
      // The product with the keys may be under way. The compiler would wait for it in any case.
      wgmma_wait<0>();
      this->rescale_sums(factor);
    }
    multiply_values<SIDE>(1 - SIDE, others, left);
  }

  // Multiplies the tile's rows with the kv tokens [begin, end). make_logits(kv) is as above, for the kv block that begins at
  // `kv`.
  template <int SIDE, typename F>
  __device__ __forceinline__ void multiply(i32 begin, i32 end, f32 scale, const F& make_logits) {
    constexpr int BLOCK = Latent::BLOCK;
    // Waits for the product with the values of the stage.
    const auto end_values = [&](int stage) {
      wgmma_wait<0>();
      wgmma_results(this->sums);
      release(stage, SIDE);
      parity ^= 1 << stage;
    };
    const auto nothing = [] {};
    if constexpr (SIDE == 0) {
#pragma unroll 1
      for (i32 kv = begin; kv < end; kv += 2 * BLOCK) {
        multiply_keys<0>();
        wgmma_wait<0>();
        weigh_own<0>(
            min(end - kv, BLOCK), scale, [&] { return make_logits(kv); }, nothing);
        if (kv + BLOCK >= end) return end_values(0);
        multiply_others<0>(min(end - kv - BLOCK, BLOCK), [&] { end_values(0); });
        end_values(1);
      }
    } else {
      i32 kv = begin;
#pragma unroll 1
      for (; kv + BLOCK < end; kv += 2 * BLOCK) {
        multiply_keys<1>();
        multiply_others<1>(BLOCK, nothing);
        wgmma_wait<1>();
        weigh_own<1>(
            min(end - kv - BLOCK, BLOCK), scale, [&] { return make_logits(kv + BLOCK); },
            [&] { end_values(0); });
        end_values(1);
      }
      if (kv >= end) return;
      multiply_others<1>(end - kv, nothing);
      end_values(0);
    }
  }

  // Adds up the sums of the weights of both warpgroups. All threads of both call it; it has a barrier of both, after which no
  // thread needs q any more.
  template <int BOTH>
  __device__ __forceinline__ void join_sums(int side) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const f32 sum = warp_reduce<4>(this->row[h].sum, Sum{});
      if (threadIdx.x % 4 == 0) shared.sums[side][wgmma_row() + 8 * h] = sum;
    }
    sync_threads(BOTH, 256);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      this->row[h].sum = shared.sums[0][wgmma_row() + 8 * h] + shared.sums[1][wgmma_row() + 8 * h];
  }
};

}  // namespace kiln
