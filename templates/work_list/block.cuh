// The crew of the work list's writer: the threads of a block (writer.cuh says what a crew does).
#pragma once
#include "attention/words.h"
#include "kiln/pdl.cuh"
#include "kiln/types.cuh"
#include "work_list/sums.h"

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
  // The last warp, which has the least to do.
  template <class F>
  __device__ __forceinline__ void few(i32 n, const F& f) const {
    if (threadIdx.x >= THREADS - 32 && threadIdx.x - (THREADS - 32) < n) f(threadIdx.x - (THREADS - 32));
  }
  static __device__ __forceinline__ i32 first() { return blockIdx.x * THREADS + threadIdx.x; }
  template <class F>
  __device__ __forceinline__ void spread(i32 n, const F& f) const {
#pragma unroll 1
    for (i32 i = first(); i < n; i += gridDim.x * THREADS) f(i);
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
      Sum own{}, until{};
      if (round + 32 * warp < n) {  // a warp without values has nothing to scan
        if (i < n) own = value(i);
        if constexpr (sums_of_words<Sum>)
          until = scan_words(own);
        else
          until = scan_warp<32>(own, lane);
      }
      if (lane == 31) write(warp, until);
      __syncthreads();
      Sum before = before_round, of_round{};
      if constexpr (sums_of_words<Sum>) {
        before = before + add_warps<Sum>(warp) + without(until, own);
        of_round = add_warps<Sum>(WARPS);
      } else {
        const Sum warps = scan_warp<WARPS>(lane < WARPS ? read<Sum>(lane) : Sum{}, lane);
        const Sum warps_before = shuffle(warps, warp > 0 ? warp - 1 : 0),
                  lanes_before = shuffle(until, lane > 0 ? lane - 1 : 0);
        of_round = shuffle(warps, WARPS - 1);
        if (warp > 0) before = before + warps_before;
        if (lane > 0) before = before + lanes_before;
      }
      if (i < n) put(i, before);
      before_round = before_round + of_round;
      __syncthreads();
    }
    return before_round;
  }
  // As a scan of the flags, of which a warp counts each with one vote.
  template <class Flags, class Put>
  __device__ __forceinline__ FlagCounts count(i32 n, const Flags& flags, const Put& put) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    FlagCounts before_round{};
#pragma unroll 1
    for (i32 round = 0; round < n; round += THREADS) {
      const i32 i = round + threadIdx.x;
      const unsigned own = i < n ? flags(i) : 0;
      const u32 first = __ballot_sync(~0u, own & 1), second = __ballot_sync(~0u, own & 2),
                third = __ballot_sync(~0u, own & 4);
      const auto of_lanes = [&](u32 lanes) {
        return FlagCounts{static_cast<unsigned>(__popc(first & lanes) | __popc(second & lanes) << 16),
                          static_cast<unsigned>(__popc(third & lanes))};
      };
      if (lane == 0) write(warp, of_lanes(~0u));
      __syncthreads();
      const FlagCounts before = before_round + add_warps<FlagCounts>(warp) + of_lanes((1u << lane) - 1);
      before_round = before_round + add_warps<FlagCounts>(WARPS);
      if (i < n) put(i, before, own);
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
  // The sum of the first `warps` warps, for sums of words. All lanes call it.
  template <class Sum>
  __device__ __forceinline__ Sum add_warps(int warps) const {
    const int lane = threadIdx.x % 32;
    Words<Sum> words{};
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Sum) / 4); ++i)
      words.word[i] = __reduce_add_sync(0xffffffffu, lane < warps ? shared->sums[i][lane] : 0);
    return __builtin_bit_cast(Sum, words);
  }
  // The sum of the values of this lane and the lanes before it, for sums of words.
  template <class Sum>
  static __device__ __forceinline__ Sum scan_words(const Sum& v) {
    Words<Sum> words = __builtin_bit_cast(Words<Sum>, v);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(Sum) / 4); ++i)
        asm volatile(
            "{ .reg .u32 other; .reg .pred has; shfl.sync.up.b32 other|has, %0, %1, 0, 0xffffffff; "
            "@has add.u32 %0, %0, other; }"
            : "+r"(words.word[i])
            : "r"(distance));
    }
    return __builtin_bit_cast(Sum, words);
  }
  template <class Sum>
  static __device__ __forceinline__ Sum without(const Sum& sum, const Sum& part) {
    Words<Sum> words = __builtin_bit_cast(Words<Sum>, sum);
    const Words<Sum> parts = __builtin_bit_cast(Words<Sum>, part);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Sum) / 4); ++i) words.word[i] -= parts.word[i];
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
