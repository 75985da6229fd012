// The crew of the work list's writer: the threads of a block (writer.cuh says what a crew does).
#pragma once
#include "attention/words.h"
#include "kiln/pdl.cuh"
#include "kiln/types.cuh"

namespace kiln::work_list {

template <int THREADS>
struct Block {
  // The sums of the warps in a scan. A sum has at most WORDS words.
  enum : int { WARPS = THREADS / 32, WORDS = 8 };
  struct Shared {
    u32 sums[WORDS][WARPS];
  };
  Shared* shared;

  template <class F>
  __device__ __forceinline__ void each(i32 n, const F& f) const {
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += THREADS) f(i);
    __syncthreads();
  }
  template <class F>
  __device__ __forceinline__ bool any(i32 n, const F& f) const {
    bool out = false;
#pragma unroll 1
    for (i32 i = threadIdx.x; i < n; i += THREADS) out |= f(i);
    return __syncthreads_or(out);
  }
  // The last thread, whose warp has the least to do.
  template <class F>
  __device__ __forceinline__ void once(const F& f) const {
    if (threadIdx.x == THREADS - 1) f();
  }
  template <class F>
  __device__ __forceinline__ void spread(i32 n, const F& f) const {
#pragma unroll 1
    for (i32 i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) f(i);
  }

  // Rounds of THREADS values. Each warp scans its values, and then the sums of all warps.
  template <class Sum, class Value, class Put>
  __device__ __forceinline__ Sum scan(i32 n, const Value& value, const Put& put) const {
    static_assert(sizeof(Sum) % 4 == 0 && sizeof(Sum) <= 4 * WORDS, "a sum is at most WORDS words");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Sum before_round{};
#pragma unroll 1
    for (i32 round = 0; round < n; round += THREADS) {
      const i32 i = round + threadIdx.x;
      Sum until{};
      if (round + 32 * warp < n) {  // a warp without values has nothing to scan
        if (i < n) until = value(i);
        until = scan_warp<32>(until, lane);
      }
      if (lane == 31) write(warp, until);
      __syncthreads();
      Sum before = before_round;
      Sum warps_before{}, of_round;
      if (n <= 32) {
        of_round = read<Sum>(0);
      } else {
        const Sum warps = scan_warp<WARPS>(lane < WARPS ? read<Sum>(lane) : Sum{}, lane);
        warps_before = shuffle(warps, warp > 0 ? warp - 1 : 0);
        of_round = shuffle(warps, WARPS - 1);
      }
      if (round + 32 * warp < n) {
        const Sum lanes_before = shuffle(until, lane > 0 ? lane - 1 : 0);
        if (warp > 0) before = before + warps_before;
        if (lane > 0) before = before + lanes_before;
        if (i < n) put(i, before);
      }
      before_round = before_round + of_round;
      __syncthreads();
    }
    return before_round;
  }

  static __device__ __forceinline__ void wait() { pdl_wait(); }
  static __device__ __forceinline__ void raise(int* word, int v) { atomicMax(word, v); }
  static __device__ __forceinline__ void mark(int& word) { *const_cast<volatile int*>(&word) = 1; }
  static __device__ __forceinline__ void store(int* to, const AttentionItem& item) {
    const auto* const from = reinterpret_cast<const int*>(&item);
#pragma unroll
    for (int i = 0; i < AttentionWords::ITEM; i += 4)
      asm volatile("st.global.v4.s32 [%0], {%1, %2, %3, %4};" ::"l"(to + i), "r"(from[i]), "r"(from[i + 1]),
                   "r"(from[i + 2]), "r"(from[i + 3])
                   : "memory");
  }

 private:
  template <class Sum>
  struct Words {
    u32 word[sizeof(Sum) / 4];
  };
  // The sum of a warp.
  template <class Sum>
  __device__ __forceinline__ void write(int warp, const Sum& v) const {
    const Words<Sum> words = __builtin_bit_cast(Words<Sum>, v);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Sum) / 4); ++i) shared->sums[i][warp] = words.word[i];
  }
  template <class Sum>
  __device__ __forceinline__ Sum read(int warp) const {
    Words<Sum> words;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Sum) / 4); ++i) words.word[i] = shared->sums[i][warp];
    return __builtin_bit_cast(Sum, words);
  }
  template <class Sum>
  static __device__ __forceinline__ Sum shuffle(const Sum& v, int lane) {
    Words<Sum> words = __builtin_bit_cast(Words<Sum>, v);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Sum) / 4); ++i)
      words.word[i] = __shfl_sync(0xffffffffu, words.word[i], lane);
    return __builtin_bit_cast(Sum, words);
  }
  // The sum of the values of this lane and the lanes before it, for the first LANES lanes.
  template <int LANES, class Sum>
  static __device__ __forceinline__ Sum scan_warp(Sum v, int lane) {
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) {
      const Sum other = shuffle(v, lane >= distance ? lane - distance : lane);
      if (lane >= distance) v = other + v;
    }
    return v;
  }
};

}  // namespace kiln::work_list
