// Sequences of tokens: of one length, or of lengths of their own by cu_seqlens (where each begins, and the end of the last).
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

__device__ __forceinline__ i64 load_one(const i64* p) {
  const Vec<i64, 1> v = load<1>(p);
  return static_cast<i64>(static_cast<u64>(v.word[1]) << 32 | v.word[0]);
}

// Its tokens are [begin, end).
struct Sequence {
  i64 begin, end;
};

template <bool VARLEN>
__device__ __forceinline__ Sequence sequence(const i64* cu_seqlens, i32 n, i64 length) {
  if constexpr (VARLEN) {
    return {load_one(cu_seqlens + n), load_one(cu_seqlens + n + 1)};
  } else {
    return {n * length, (n + 1) * length};
  }
}

// The sequence that has the token: the last one that begins at it or before it, since those behind which nothing lies are empty.
// REQUIRES: cu_seqlens[0] <= token < cu_seqlens[sequences].
__device__ __forceinline__ i32 sequence_of(i64 token, const i64* cu_seqlens, i32 sequences) {
  i32 low = 0, high = sequences;
  while (high - low > 1) {
    const i32 middle = low + (high - low) / 2;
    (load_one(cu_seqlens + middle) <= token ? low : high) = middle;
  }
  return low;
}

}  // namespace kiln
