// Finds the tokens of a sequence, and the sequence of a token. Either all sequences have one length, or
// cu_seqlens says where each sequence begins, and where the last sequence ends.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

// Loads one element in program order, as load() does.
__device__ __forceinline__ i64 load_one(const i64* p) {
  const Vec<i64, 1> v = load<1>(p);
  return static_cast<i64>(static_cast<u64>(v.word[1]) << 32 | v.word[0]);
}

// A sequence has the tokens [begin, end).
struct Sequence {
  i64 begin, end;
};

// Returns sequence n. With VARLEN it is read from cu_seqlens; otherwise every sequence has `length` tokens.
template <bool VARLEN>
__device__ __forceinline__ Sequence sequence(const i64* cu_seqlens, i32 n, i64 length) {
  if constexpr (VARLEN) {
    return {load_one(cu_seqlens + n), load_one(cu_seqlens + n + 1)};
  } else {
    return {n * length, (n + 1) * length};
  }
}

// Returns the sequence that has the token: the last sequence that begins at the token or before it.
// Earlier sequences that begin at the same place are empty.
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
