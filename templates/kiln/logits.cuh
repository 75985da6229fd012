// What happens to the products of q and k before the softmax, in FlashInfer's order: scale, ALiBi, soft cap, and then the masks.
#pragma once
#include "kiln/math.cuh"
#include "kiln/vector.cuh"

namespace kiln {

// sm_scale as callers give it: 0 is 1 / sqrt(d).
__device__ __forceinline__ f32 softmax_scale(f32 sm_scale, int d) { return sm_scale == 0.0f ? rsqrtf(static_cast<f32>(d)) : sm_scale; }

// Makes base-2 logits of products: x = sm_scale * product + slope * distance, then cap * tanh(x / cap), times log2(e). Without either the product
// stays as it is, and `scale` is what the softmax multiplies it with.
template <bool SOFT_CAP, bool ALIBI>
struct LogitTransform {
  static constexpr bool IDENTITY = !SOFT_CAP && !ALIBI;
  f32 factor;  // of the product
  f32 unit;    // of everything that is added to it
  f32 cap;     // in base 2

  __device__ __forceinline__ LogitTransform(f32 sm_scale, f32 soft_cap) {
    unit = SOFT_CAP ? 2.0f * LOG2_E / soft_cap : LOG2_E;  // tanh(x / cap) takes 2^(2 log2(e) x / cap)
    factor = sm_scale * unit;
    cap = soft_cap * LOG2_E;
  }
  __device__ __forceinline__ f32 scale() const { return IDENTITY ? factor : 1.0f; }

  // `bias` is slope * distance * unit; unused without ALIBI.
  __device__ __forceinline__ f32 operator()(f32 product, f32 bias) const {
    if constexpr (IDENTITY) return product;
    const f32 x = ALIBI ? product * factor + bias : product * factor;
    if constexpr (!SOFT_CAP) return x;
    // tanh(y) = 1 - 2 / (e^2y + 1); tanh.approx is good to 2^-11 only, which a cap of 50 makes 2 % of a weight.
    return cap - 2.0f * cap * reciprocal_approx(exp2_approx(x) + 1.0f);
  }
};

// The kv tokens that a row may see: [first, last]. Both masks are aligned at the right end: the last token of q sees the last one of kv.
struct Visible {
  i32 first, last;
  __device__ __forceinline__ bool operator()(i32 kv) const { return kv >= first && kv <= last; }
};

// Of token `qo` of a request. window_left < 0: no window; it reaches so many tokens to the left of the row's own.
template <bool CAUSAL, bool WINDOW>
__device__ __forceinline__ Visible visible(i32 qo, i32 qo_len, i32 kv_len, i32 window_left) {
  const i32 own = qo + kv_len - qo_len;
  return {WINDOW && window_left >= 0 ? own - min(window_left, kv_len + qo_len) : -0x7fffffff, CAUSAL ? min(own, kv_len - 1) : kv_len - 1};
}

// A custom mask is the bits of [qo_len][kv_len] of each request, bit 0 of a byte first; a request begins at a byte.
struct MaskBits {
  const u8* request;  // the request's first byte
  i32 kv_len;

  // Bits of N pairs of neighbouring kv tokens of a row of q, the pairs 8 apart: pair i is bits 2i and 2i + 1, of the tokens kv + 8i and kv + 8i + 1.
  // Tokens from kv_len on have any bits. REQUIRES: kv is even.
  template <int N>
  __device__ __forceinline__ u32 pairs(i32 qo, i32 kv) const {
    static_assert(N <= 16, "32 bits");
    const i64 bit = static_cast<i64>(qo) * kv_len + kv;
    const u8* const bytes = request + bit / 8;
    const int shift = static_cast<int>(bit % 8);
    u32 out = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      u32 word = 0;
      if (kv + 8 * i < kv_len) word = load<1>(bytes + i).word[0];
      if (shift == 7 && kv + 8 * i + 1 < kv_len) word |= load<1>(bytes + i + 1).word[0] << 8;  // the pair lies in two bytes
      out |= (word >> shift & 3) << (2 * i);
    }
    return out;
  }
};

}  // namespace kiln
