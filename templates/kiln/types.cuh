// Fixed-width number types, and the compile-time arithmetic that templates share.
// They need no header of a vendor or of the standard library.
#pragma once

namespace kiln {

using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

// Returns a / b rounded up. REQUIRES: a >= 0 and b > 0.
__host__ __device__ constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

__host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int larger(int a, int b) { return a < b ? b : a; }

// Returns the smallest power of two that is at least n; for n < 1 that is 1. REQUIRES: n <= 2^30.
__host__ __device__ constexpr int next_pow2(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

// Returns the second argument of __launch_bounds__ (blocks per SM) for blocks of `threads` threads: as many
// blocks as have 1024 threads together. A thread of a small block then has at most 64 registers. With fewer
// resident threads, a streaming kernel has too few bytes in flight to cover the latency of device memory.
__host__ __device__ constexpr int resident_blocks(int threads) {
  return threads >= 1024 ? 1 : 1024 / threads;
}

// True if A and B are the same type.
template <typename A, typename B>
inline constexpr bool same = false;
template <typename A>
inline constexpr bool same<A, A> = true;

}  // namespace kiln
