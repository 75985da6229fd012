#include "runtime/operator/tensor.hpp"

#include <iterator>

namespace kiln::runtime {
namespace {

/// In the order of Dtype. DLPack's codes: 0 signed, 1 unsigned, 2 floating-point, 4 bfloat16, 10 e4m3fn, 12 e5m2.
constexpr DlpackType kTypes[] = {{2, 32}, {2, 16}, {4, 16}, {10, 8}, {12, 8}, {2, 64},
                                 {0, 8},  {1, 8},  {0, 32}, {1, 32}, {0, 64}, {1, 64}};
static_assert(std::size(kTypes) == static_cast<std::size_t>(kDtypeCount));
constexpr std::uint8_t kBoolean = 6;

std::string list(const std::int64_t* numbers, int count) {
  std::string out = "[";
  for (int i = 0; i < count; ++i) out += (i ? ", " : "") + std::to_string(numbers[i]);
  return out + ']';
}

}  // namespace

DlpackType dlpack_type(Dtype dtype) noexcept { return kTypes[static_cast<std::size_t>(dtype)]; }

int dtype_of(const kiln_tensor& tensor) noexcept {
  if (tensor.dtype_lanes != 1) return -1;
  if (tensor.dtype_code == kBoolean && tensor.dtype_bits == 8) return static_cast<int>(Dtype::u8);
  for (int i = 0; i < kDtypeCount; ++i)
    if (kTypes[i].code == tensor.dtype_code && kTypes[i].bits == tensor.dtype_bits) return i;
  return -1;
}

bool is_contiguous(const kiln_tensor& t) noexcept {
  if (!t.strides) return true;
  std::int64_t expected = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    if (t.shape[i] == 0) return true;
    if (t.shape[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

Joined join_leading(const kiln_tensor& t, int end) noexcept {
  Joined out;
  bool first = true;
  for (int i = end - 1; i >= 0; --i) {
    const std::int64_t stride = t.shape[i] == 1 ? 0 : stride_of(t, i);
    if (t.shape[i] != 1) {
      if (first)
        out.stride = stride;
      else if (stride != out.stride * out.extent)
        out.possible = false;
      first = false;
    }
    out.extent *= t.shape[i];
  }
  if (out.extent == 0) out.possible = true;
  return out;
}

std::string described(const kiln_tensor& t) {
  const int dtype = dtype_of(t);
  std::string out = dtype >= 0
                        ? std::string(kDtypeNames[dtype])
                        : "DLPack's type (" + std::to_string(t.dtype_code) + ", " +
                              std::to_string(t.dtype_bits) + ", " + std::to_string(t.dtype_lanes) + ')';
  out += ' ' + list(t.shape, t.ndim);
  if (!is_contiguous(t)) out += " with strides " + list(t.strides, t.ndim);
  return out;
}

}  // namespace kiln::runtime
