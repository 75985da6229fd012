// The crew of the work list's writer: the threads of a block (writer.cuh says what a crew does).
#pragma once
#include "attention/words.h"
#include "kiln/types.cuh"

namespace kiln::work_list {

template <int THREADS>
struct Block {
  // The sums of the warps in a scan. A sum has at most WORDS words.
  enum : int { WARPS = THREADS / 32, WORDS = 8 };
  struct Shared {
    u32 sums[WARPS][WORDS];
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
  template <class F>
  __device__ __forceinline__ void spread(i32 n, const F& f) const {
#pragma unroll 1
    for (i32 i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) f(i);
  }

  // Rounds of THREADS values. Each warp scans its values, and the first warp scans the sums of the warps.
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
      if (lane == 31) write(shared->sums[warp], until);
      __syncthreads();
      if (warp == 0) {
        const Sum sums = lane < WARPS ? read<Sum>(shared->sums[lane]) : Sum{};
        const Sum all = scan_warp<WARPS>(sums, lane);
        if (lane < WARPS) write(shared->sums[lane], all);
      }
      __syncthreads();
      Sum before = before_round;
      if (warp > 0) before = before + read<Sum>(shared->sums[warp - 1]);
      before_round = before_round + read<Sum>(shared->sums[WARPS - 1]);
      if (round + 32 * warp < n) {
        const Sum lanes_before = shuffle(until, lane > 0 ? lane - 1 : 0);
        if (lane > 0) before = before + lanes_before;
        if (i < n) put(i, before);
      }
      __syncthreads();
    }
    return before_round;
  }

  static __device__ __forceinline__ void raise(int* word, int v) { atomicMax(word, v); }
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
  template <class Sum>
  static __device__ __forceinline__ void write(u32* to, const Sum& v) {
    const Words<Sum> words = __builtin_bit_cast(Words<Sum>, v);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Sum) / 4); ++i) to[i] = words.word[i];
  }
  template <class Sum>
  static __device__ __forceinline__ Sum read(const u32* from) {
    Words<Sum> words;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Sum) / 4); ++i) words.word[i] = from[i];
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
