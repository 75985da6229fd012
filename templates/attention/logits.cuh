// Turns products of q and k into logits, in FlashInfer's order: scale, ALiBi, soft cap, and then the masks.
#pragma once
#include "attention/visible.cuh"
#include "kiln/math.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// Returns the scale of the softmax. Callers give sm_scale = 0 for 1 / sqrt(d).
__device__ __forceinline__ f32 softmax_scale(f32 sm_scale, int d) {
  return sm_scale == 0.0f ? rsqrtf(static_cast<f32>(d)) : sm_scale;
}

// Makes base-2 logits of products. x = sm_scale * product + slope * distance becomes cap * tanh(x / cap), and
// this is multiplied by log2(e). Without soft cap and ALiBi the product stays as it is, and the softmax
// multiplies it by scale().
template <bool SOFT_CAP, bool ALIBI>
struct LogitTransform {
  static constexpr bool IDENTITY = !SOFT_CAP && !ALIBI;
  f32 factor;  // factor of the product
  f32 unit;    // factor of everything that is added to the product
  f32 cap;     // the soft cap, in base 2

  __device__ __forceinline__ LogitTransform(f32 sm_scale, f32 soft_cap) {
    unit = SOFT_CAP ? 2.0f * LOG2_E / soft_cap : LOG2_E;  // tanh(x / cap) takes 2^(2 log2(e) x / cap)
    factor = sm_scale * unit;
    cap = soft_cap * LOG2_E;
  }
  __device__ __forceinline__ f32 scale() const { return IDENTITY ? factor : 1.0f; }

  // `bias` is slope * distance * unit; it is unused without ALIBI.
  __device__ __forceinline__ f32 operator()(f32 product, f32 bias) const {
    if constexpr (IDENTITY) return product;
    const f32 x = ALIBI ? product * factor + bias : product * factor;
    if constexpr (!SOFT_CAP) return x;
    // tanh(y) = 1 - 2 / (e^2y + 1). tanh.approx is good to 2^-11 only, which a cap of 50 turns into 2 % of
    // a weight.
    return cap - 2.0f * cap * reciprocal_approx(exp2_approx(x) + 1.0f);
  }
};

// A custom mask. Each request has the bits [qo_len][kv_len], bit 0 of a byte first, and begins at a byte. The
// mask is read in aligned words of 4 bytes that hold bits of the request. The first word may begin before the
// request, and the last word may end after it.
struct MaskBits {
  const u8* request;  // the request's first byte
  i32 kv_len;

  // Returns the mask of query token `qo` for the TOKENS tokens from `kv` on. Bit i belongs to kv token kv +
  // i; bits from kv_len on are undefined.
  template <int TOKENS>
  __device__ __forceinline__ u64 window(i32 qo, i32 kv) const {
    static_assert(TOKENS <= 64, "the mask of TOKENS bits must fit in 64 bits");
    const i64 bit = static_cast<i64>(qo) * kv_len + kv;
    const u64 address = reinterpret_cast<u64>(request) + bit / 8;
    const u32* const words = reinterpret_cast<const u32*>(address & ~3ull);
    const int shift = static_cast<int>(address & 3) * 8 + static_cast<int>(bit % 8),
              bits = shift + min(TOKENS, kv_len - kv);
    constexpr int WORDS = (TOKENS + 31) / 32 + 1;  // words that TOKENS bits can touch
    u32 word[WORDS] = {};
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
      if (32 * i < bits) word[i] = load<1>(words + i).word[0];
    }
    const u32 low = __funnelshift_r(word[0], word[1], shift);
    if constexpr (TOKENS <= 32) return low;
    return static_cast<u64>(__funnelshift_r(word[1], word[WORDS - 1], shift)) << 32 | low;
  }
};

}  // namespace kiln
