// Computes token shift and its mixes, RWKV7's first step: d = prev - x, out_i = x + d * mu_i. prev is the
// token before x; for the first token of a sequence prev comes from the cache.
//
// TOKENS neighbouring tokens are a group. The vectors of all groups and columns form one flat sequence. Each
// thread has one vector of a group: it reads each x once for all outputs. Only the token before the group is
// read a second time.
#include "kiln/pdl.cuh"
#include "recurrent/sequences.cuh"

namespace kiln {

// Returns the second argument of __launch_bounds__.
// With more than two tokens a thread needs the registers; half of the threads keep enough loads in flight.
__host__ __device__ constexpr int shift_blocks(int threads, int tokens) {
  return tokens > 2 ? larger(1, resident_blocks(threads) / 2) : resident_blocks(threads);
}

// REQUIRES: a thread for each of the D / VEC vectors of each group, and fewer than 2^31 groups.
// - Without VARLEN each sequence has ceil(length / TOKENS) groups, or one group if it is empty.
// - With VARLEN the `length` tokens of all sequences have ceil(length / TOKENS) groups.
//   One more group for each sequence follows; an empty sequence needs it to hand its cache on.
template <typename T, int D, int OUTPUTS, bool VARLEN, int VEC, int THREADS, int TOKENS>
__global__ void __launch_bounds__(THREADS, shift_blocks(THREADS, TOKENS))
    rwkv7_shift_mix(T* out, const T* x, const T* mu, i32 sequences, i64 length, i64 stride_x, i64 stride_out,
                    i64 stride_mix, const T* cache, T* cache_out, const i64* cu_seqlens) {
  using Values = Vec<T, VEC>;
  constexpr int CHUNKS = D / VEC;
  const i64 block = static_cast<i64>(blockIdx.x) * THREADS, block_group = block / CHUNKS;
  const u32 offset = static_cast<u32>(block - block_group * CHUNKS) + threadIdx.x;
  const u32 group = static_cast<u32>(block_group) + offset / CHUNKS;
  const int column = static_cast<int>(offset % CHUNKS) * VEC;
  const u32 some = static_cast<u32>((length + TOKENS - 1) / TOKENS),
            groups = VARLEN || some > 0 ? some : 1;  // groups of a sequence; with VARLEN of all tokens

  pdl_launch_dependents_of_few<64>();
  pdl_wait();
  const auto cached = [&](i64 n) { return cache ? load<VEC>(cache + n * D + column) : Values{}; };
  if (VARLEN ? group >= groups : length < 1) {
    // The group has no tokens; it hands on the cache of an empty sequence.
    const u32 n = VARLEN ? group - groups : group;
    if (n >= sequences || !cache_out) return;
    const Sequence span = sequence<VARLEN>(cu_seqlens, n, length);
    if (span.begin == span.end) store(cache_out + static_cast<i64>(n) * D + column, cached(n));
    return;
  }
  i32 n = VARLEN ? 0 : group / groups;
  if (n >= sequences) return;
  const i64 sequence_begin = n * length;  // with VARLEN, all sequences count as one
  const i64 first = sequence_begin + static_cast<i64>(group - n * groups) * TOKENS,
            left = sequence_begin + length - first;
  const int count = left < TOKENS ? static_cast<int>(left) : TOKENS;

  Values now[TOKENS], before[TOKENS], mix[OUTPUTS];
  if (first > sequence_begin) before[0] = load<VEC>(x + (first - 1) * stride_x + column);
#pragma unroll
  for (int i = 0; i < TOKENS; ++i) {
    if (i < count) now[i] = load<VEC>(x + (first + i) * stride_x + column);
  }
#pragma unroll
  for (int j = 0; j < OUTPUTS; ++j) mix[j] = load<VEC>(mu + j * D + column);
  Sequence span = sequence<false>(nullptr, n, length);
  if constexpr (VARLEN) {
    n = sequence_of(first, cu_seqlens, sequences);
    span = sequence<true>(cu_seqlens, n, length);
  }
#pragma unroll
  for (int i = 0; i < TOKENS; ++i) {
    if (i >= count) continue;
    if (VARLEN && first + i == span.end && n + 1 < sequences) {
      // Tokens after the end of the last sequence count as tokens of that sequence.
      do span = sequence<true>(cu_seqlens, ++n, length);
      while (span.begin == span.end && n + 1 < sequences);
    }
    if (first + i == span.begin)
      before[i] = cached(n);
    else if (i > 0)
      before[i] = now[i - 1];
    if (cache_out && first + i == span.end - 1) store(cache_out + static_cast<i64>(n) * D + column, now[i]);
  }
  pdl_launch_dependents();

#pragma unroll
  for (int i = 0; i < TOKENS; ++i) {
    if (i >= count) continue;
    f32 v[VEC], d[VEC], m[VEC], y[VEC];
    widen(now[i], v);
    widen(before[i], d);
    for (int l = 0; l < VEC; ++l) d[l] -= v[l];
#pragma unroll
    for (int j = 0; j < OUTPUTS; ++j) {
      keep_packed(mix[j]);
      widen(mix[j], m);
      for (int l = 0; l < VEC; ++l) y[l] = fmaf(d[l], m[l], v[l]);
      store(out + j * stride_mix + (first + i) * stride_out + column, narrow<T>(y));
    }
  }
}

}  // namespace kiln
