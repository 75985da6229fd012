// Naive reference for mla_append, with one block for each token. Codes are not rounded to fp8. A byte of a scale or of
// a rotated element becomes the number that it would be as a code.
#include "attention/paged_reference.cuh"
#include "kiln/dtype.cuh"

namespace kiln {
namespace reference {

template <typename T, typename KV, typename I, bool POW2>
__global__ void mla_append(f64* kv_cache, const T* c_kv, const T* k_pe, i32 tokens, i32 page_size,
                           i64 stride_c, i64 stride_pe, i64 stride_page, i64 stride_slot,
                           const I* slot_mapping) {
  constexpr int VALUES = 512, ROTATED = 64, GROUP = 128;
  const i64 token = blockIdx.x;
  if (token >= tokens) return;
  const Place place =
      find_place<Paging::slot_mapping, I>(token, 0, page_size, slot_mapping, nullptr, nullptr, nullptr);
  if (place.page < 0) return;
  f64* const row = kv_cache + place.page * stride_page + place.entry * stride_slot;
  const T* const c = c_kv + token * stride_c;
  const T* const pe = k_pe + token * stride_pe;
  if constexpr (same<KV, T>) {
    for (int j = threadIdx.x; j < VALUES + ROTATED; j += blockDim.x)
      row[j] = to_double(j < VALUES ? c[j] : pe[j - VALUES]);
  } else {
    const auto scale_of_group = [&](int group) {
      f32 largest = 0.0f;
      for (int j = group * GROUP; j < (group + 1) * GROUP; ++j) {
        const f32 x = to_float(c[j]);
        if (fabsf(x) > largest) largest = fabsf(x);
      }
      if (largest < 0x1p-100f) largest = 0x1p-100f;
      if (largest > 3.40282347e38f) largest = 3.40282347e38f;
      f32 scale = largest / 448.0f;
      if (POW2) {
        f32 power = 0x1p-120f;
        while (power * 448.0f < largest) power *= 2.0f;
        scale = power;
      }
      return scale;
    };
    const auto byte = [](const void* p, int i) { return to_double(KV{reinterpret_cast<const u8*>(p)[i]}); };
    for (int j = threadIdx.x; j < VALUES; j += blockDim.x) {
      const f64 code = to_double(c[j]) / static_cast<f64>(scale_of_group(j / GROUP));
      row[j] = code > 448.0 ? 448.0 : code < -448.0 ? -448.0 : code;
    }
    for (int j = threadIdx.x; j < 4 * (VALUES / GROUP); j += blockDim.x) {
      const f32 scale = scale_of_group(j / 4);
      row[VALUES + j] = byte(&scale, j % 4);
    }
    for (int j = threadIdx.x; j < 2 * ROTATED; j += blockDim.x)
      row[VALUES + 4 * (VALUES / GROUP) + j] = byte(pe, j);
  }
}

}  // namespace reference
}  // namespace kiln
