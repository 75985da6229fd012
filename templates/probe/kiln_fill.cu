// Fills a buffer with reproducible random elements, which are the inputs of `kiln run`.
#include "kiln/dtype.cuh"
#include "kiln/pdl.cuh"
#include "probe/random.cuh"

namespace kiln {

enum class Dist { normal, uniform, integer, constant };

// Draws one element from random bits.
template <typename T, Dist DIST>
__device__ T draw(u64 bits, f32 a, f32 b) {
  if constexpr (DIST == Dist::normal) return from_float<T>(a + b * standard_normal(bits));
  if constexpr (DIST == Dist::uniform) return from_float<T>(a + (b - a) * unit(static_cast<u32>(bits)));
  if constexpr (DIST == Dist::integer) {
    const i64 low = static_cast<i64>(a), span = static_cast<i64>(b) - low + 1;
    const i64 value = low + static_cast<i64>(bits % static_cast<u64>(span > 0 ? span : 1));
    if constexpr (is_float<T>)
      return from_float<T>(static_cast<float>(value));
    else
      return static_cast<T>(value);
  }
  return from_float<T>(a);
}

// DIST gives a and b their meaning:
// - normal has the mean a and the standard deviation b.
// - uniform is between a and b.
// - integer is from a to b, inclusive.
// - constant is a.
// An element of ue8m0 is the magnitude of the number, rounded up to a power of two; it is never NaN.
// A normal or uniform float that rounds to zero is drawn again, up to 8 times, because a zero hides errors.
template <typename T, Dist DIST>
__global__ void __launch_bounds__(256) fill(T* out, i64 n, u64 seed, f32 a, f32 b) {
  pdl_wait();
  const i64 step = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    u64 bits = random_bits(seed, static_cast<u64>(i));
    T value = draw<T, DIST>(bits, a, b);
    if constexpr (is_float<T> && (DIST == Dist::normal || DIST == Dist::uniform)) {
      for (int again = 0; again < 8 && to_float(value) == 0.0f; ++again)
        value = draw<T, DIST>(bits = mix(bits), a, b);
    }
    out[i] = value;
  }
}

}  // namespace kiln
