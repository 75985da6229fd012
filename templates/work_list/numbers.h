// Numbers and small functions for the headers of this folder, which the host and the device compile.
#pragma once

#ifdef __CUDACC__
#define KILN_BOTH __host__ __device__
#define KILN_APART __noinline__
#define KILN_KEEP_LOOP _Pragma("unroll 1")
#else
#define KILN_BOTH
#define KILN_APART
#define KILN_KEEP_LOOP
#endif

namespace kiln::work_list {

#ifdef __CUDACC__
using Int = long long;
using Unsigned = unsigned long long;
#else
using Int = __INT64_TYPE__;  // std::int64_t; templates need no header of the standard library
using Unsigned = __UINT64_TYPE__;
#endif

KILN_BOTH constexpr Int smaller(Int a, Int b) { return b < a ? b : a; }
KILN_BOTH constexpr Int larger(Int a, Int b) { return a < b ? b : a; }
KILN_BOTH constexpr Int between(Int v, Int low, Int high) { return v < low ? low : high < v ? high : v; }

/// Divides in 32 bits, since 64 bits take several times as long. REQUIRES: 0 <= a < 2^32, 0 < b < 2^32.
KILN_BOTH constexpr Int divide(Int a, Int b) { return static_cast<unsigned>(a) / static_cast<unsigned>(b); }
/// A divisor with its reciprocal. Divisions by it take a fifth of the time on the device.
struct Divisor {
  unsigned value = 1, reciprocal = ~0u;

  constexpr Divisor() = default;
  /// REQUIRES: 0 < v < 2^32.
  KILN_BOTH explicit constexpr Divisor(Int v)
      : value(static_cast<unsigned>(v)), reciprocal(~0u / static_cast<unsigned>(v)) {}
};
/// REQUIRES: 0 <= a < 2^32.
KILN_BOTH constexpr Int divide(Int a, const Divisor& b) {
  const auto n = static_cast<unsigned>(a);
  const auto out =
      static_cast<unsigned>(static_cast<Unsigned>(n) * b.reciprocal >> 32);  // at most 1 too small
  return out + (n - out * b.value >= b.value ? 1 : 0);
}

/// Divides in 32 bits where both numbers fit. REQUIRES: 0 <= a, 0 < b.
KILN_BOTH constexpr Int divide_any(Int a, Int b) { return ((a | b) >> 32) == 0 ? divide(a, b) : a / b; }

/// REQUIRES: 0 <= a.
KILN_BOTH constexpr Int divide_any(Int a, const Divisor& b) {
  return (a >> 32) == 0 ? divide(a, b) : a / static_cast<Int>(b.value);
}

KILN_BOTH constexpr Int common_divisor(Int a, Int b) {
  KILN_KEEP_LOOP
  while (b != 0) {
    const Int rest = a - divide_any(a, b) * b;
    a = b;
    b = rest;
  }
  return a;
}

KILN_BOTH inline double square_root(double v) {
#ifdef __CUDACC__
  return sqrt(v);
#else
  return __builtin_sqrt(v);
#endif
}

}  // namespace kiln::work_list
