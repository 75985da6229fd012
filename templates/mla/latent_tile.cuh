// A warpgroup's half of a tile of attention over a latent cache (sm_90a).
//
// A tile has 64 packed rows. Two warpgroups, the left (side 0) and the right (side 1) one, have all of these rows, and 256 of
// the 512 output columns each. A stage of shared memory has a kv block of 64 rows. The left warpgroup owns stage 0, and the
// right one stage 1. The owner computes the weights of a kv block from all 576 columns. Both warpgroups then multiply the
// weights with their own columns of the kv block: first the weights of stage 0, then the weights of stage 1. While one
// warpgroup computes weights, the products of the other one keep the tensor cores busy.
//
// The weights lie in the last panel of the stage: its keys are not needed any more, and it holds no values. A thread that sees them
// also sees the values, because their owner has waited for all panels.
//
// Both sides run the same code, because products with 256 columns take the compiler long.
#pragma once
#include "attention/prefill/wgmma_tile.cuh"
#include "kiln/hopper/results.cuh"
#include "kiln/mma.cuh"

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
      // Each warp of one warpgroup releases a part, and each warp of both releases the last one.
      for (int part = 0; part < Latent::PARTS; ++part) empty[stage][part].init(part == Latent::LAST ? 8 : 4);
      weighed[stage].init(4);
    }
    barriers_ready();
    fence_async_shared();
  }
};

// With IN_REGISTERS a thread keeps left operands in registers: the last panel of q, and the weights of the own kv block. Each takes
// 16 registers. Products with them read less of shared memory, whose speed limits the products with the keys.
template <typename T, bool IN_REGISTERS>
struct LatentTile : WgmmaTile<T, Latent::KEYS, Latent::VALUES / 2, Latent::BLOCK> {
  using Values = Panel<T, 64>[Latent::SIDE_PANELS];

  LatentStages<T>& shared;
  const int side;
  u32 parity = 0;    // bit i: of the rounds through stage i
  u32 last_q[4][4];  // the thread's rows of the last panel of q: left operands of 16 columns each

  __device__ __forceinline__ LatentTile(LatentStages<T>& stages, int own_side)
      : shared(stages), side(own_side) {}

  // Loads the last panel of q. REQUIRES: q is there.
  __device__ __forceinline__ void hold_queries() {
    if constexpr (!IN_REGISTERS) return;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_matrices(last_q[i], shared_address(shared.q[Latent::PANELS - 1]) + row * 128 +
                                   (i * 2 + lane / 16 ^ row % 8) * 16);
  }

  // A barrier of the warpgroup.
  __device__ __forceinline__ void meet() const { sync_threads(2 + side, 128); }

  // Begins s = q k^T for the kv block of the own stage. The products begin as panels arrive. If there is no kv block, the products
  // are of whatever the stage holds, and nobody reads them: ptxas would run all products one by one if these were in a branch.
  __device__ __forceinline__ void multiply_keys(bool has_own) {
    if constexpr (IN_REGISTERS) wgmma_registers(last_q);
#pragma unroll
    for (int i = 0; i < Latent::PANELS; ++i) {
      if (has_own) shared.full[side][i].wait(parity >> side & 1);
      wgmma_begin();
      const u64 left = wgmma_operand<128>(shared.q[i]), right = wgmma_operand<128>(shared.k[side][i]);
#pragma unroll
      for (int bytes = 0; bytes < 128; bytes += 32) {
        if (IN_REGISTERS && i == Latent::PANELS - 1) {
          wgmma<T, Latent::BLOCK, false>(this->s, last_q[bytes / 32], right + wgmma_along(bytes), true);
        } else {
          wgmma<T, Latent::BLOCK>(this->s, left + wgmma_along(bytes), right + wgmma_along(bytes),
                                  i > 0 || bytes > 0);
        }
      }
      wgmma_commit();
    }
  }

  // Writes the rounded weights and the shifts to the own stage. REQUIRES: meet() since the product with the keys ended.
  __device__ __forceinline__ void give_weights() {
    store_columns<T>(shared.k[side][Latent::PANELS - 1], this->s);
    if (threadIdx.x % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) shared.shift[side][wgmma_row() + 8 * h] = this->row[h].shift;
    }
    fence_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.weighed[side].arrive();
  }

  // Waits for the weights of the other warpgroup's kv block. The sums follow their shifts where the shift of a row of the warp
  // has risen.
  __device__ __forceinline__ void take_weights(int stage) {
    shared.weighed[stage].wait(parity >> stage & 1);
    bool risen = false;
    f32 shift[2], factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      shift[h] = shared.shift[stage][wgmma_row() + 8 * h];
      risen |= shift[h] != this->row[h].shift;
    }
    if (!__any_sync(0xffffffffu, risen)) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) factor[h] = this->row[h].rescale(shift[h]);
    wgmma_wait<0>();
    wgmma_results(this->sums);
    this->rescale_sums(factor);
  }

  // The columns of the stage's kv block that are this side's. Rows after the first `left` are no tokens. They may hold anything, NaN
  // too, and their weights are 0, so these rows become zeros.
  __device__ __forceinline__ Values& values_of(int stage, i32 left) {
    Values& v = reinterpret_cast<Values&>(shared.k[stage][side * Latent::SIDE_PANELS]);
    if (left < Latent::BLOCK) {
#pragma unroll 1
      for (int at = left * 8 + threadIdx.x % 128; at < Latent::BLOCK * 8; at += 128) {
#pragma unroll
        for (int i = 0; i < Latent::SIDE_PANELS; ++i)
          reinterpret_cast<uint4*>(v[i])[at] = make_uint4(0, 0, 0, 0);
      }
      fence_async_shared();
      meet();
    }
    return v;
  }

  // Begins sums += weights v for the stage's kv block, of which `left` rows are tokens. REQUIRES: the weights are there.
  __device__ __forceinline__ void multiply_values(int stage, i32 left) {
    Values& v = values_of(stage, left);
    wgmma_registers(this->sums);
    wgmma_begin();
    const u64 weights = wgmma_operand<128>(shared.k[stage][Latent::PANELS - 1]),
              right = wgmma_operand_along_n(v, Latent::BLOCK * 128);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma<T, Latent::VALUES / 2, true>(this->sums, weights + wgmma_along(i * 32),
                                         right + wgmma_along(i * 16 * 128), true);
    wgmma_commit();
  }
  // As multiply_values(), for the own stage after weigh_own().
  __device__ __forceinline__ void multiply_own_values(i32 left) {
    if constexpr (!IN_REGISTERS) {
      shared.weighed[side].wait(parity >> side & 1);
      return multiply_values(side, left);
    }
    Values& v = values_of(side, left);
    wgmma_registers(this->sums);
    wgmma_registers(this->p);
    wgmma_begin();
    const u64 right = wgmma_operand_along_n(v, Latent::BLOCK * 128);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma<T, Latent::VALUES / 2>(this->sums, this->p[i], right + wgmma_along(i * 16 * 128), true);
    wgmma_commit();
  }

  // Begins an empty group, so that groups count alike on both sides.
  __device__ __forceinline__ void no_product() {
    wgmma_begin();
    wgmma_commit();
  }

  // The warp needs its part of the stage no more, nor the weights.
  __device__ __forceinline__ void release(int stage) {
    const int lane = threadIdx.x % 32, part = lane % 2 == 0 ? side : Latent::LAST;
    if (lane < 2) shared.empty[stage][part].arrive();
    parity ^= 1 << stage;
  }

  // Turns the products with the own kv block into weights. make_logits() turns products into logits, and returns whether a
  // row has outgrown its shift.
  template <typename F>
  __device__ __forceinline__ void weigh_own(f32 scale, const F& make_logits) {
    wgmma_results(this->s);
    meet();  // the keys of the last panel have been read; here the barrier does not hold up the weights
    if (make_logits()) {
      f32 factor[2];
      this->raise_shifts(factor);
      wgmma_wait<0>();
      wgmma_results(this->sums);
      this->rescale_sums(factor);
    }
    this->weigh(scale);
    if (IN_REGISTERS) this->pack_weights();
    give_weights();
  }

  // Multiplies the tile's rows with the kv tokens [begin, end). make_logits(kv) is as above, for the kv block that begins at
  // `kv`.
  template <typename F>
  __device__ __forceinline__ void multiply(i32 begin, i32 end, f32 scale, const F& make_logits) {
    constexpr int BLOCK = Latent::BLOCK;
#pragma unroll 1
    for (i32 kv = begin; kv < end; kv += 2 * BLOCK) {
      const i32 own = kv + side * BLOCK;
      multiply_keys(own < end);
      if (side == 1) {
        take_weights(0);
        multiply_values(0, min(end - kv, BLOCK));
      } else {
        no_product();
      }
      wgmma_wait<1>();  // the product with the keys has ended
      if (own < end) {
        weigh_own(scale, [&] { return make_logits(own); });
        multiply_own_values(min(end - own, BLOCK));
      } else {
        no_product();
      }
      if (side == 1) {
        wgmma_wait<1>();
        release(0);
      } else {
        wgmma_wait<0>();
        release(0);
        if (kv + BLOCK < end) {
          take_weights(1);
          multiply_values(1, min(end - kv - BLOCK, BLOCK));
        }
      }
      wgmma_wait<0>();
      wgmma_results(this->sums);
      if (kv + BLOCK < end) release(1);
    }
  }

  // Adds up the sums of the weights of both warpgroups. All threads of both call it; it has a barrier of both, after which no
  // thread needs q any more.
  template <int BOTH>
  __device__ __forceinline__ void join_sums() {
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
