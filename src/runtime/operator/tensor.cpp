#include "runtime/operator/tensor.hpp"

#include <algorithm>

namespace kiln::runtime {
namespace {

constexpr std::uint8_t kBoolean = 6;  // DLPack's code

std::string list(const std::int64_t* numbers, int count) {
  std::string out = "[";
  for (int i = 0; i < count; ++i) out += (i ? ", " : "") + std::to_string(numbers[i]);
  return out + ']';
}

}  // namespace

int dtype_of(const kiln_tensor& tensor) noexcept {
  if (tensor.dtype_lanes != 1) return -1;
  if (tensor.dtype_code == kBoolean && tensor.dtype_bits == 8) return static_cast<int>(Dtype::u8);
  for (int i = 0; i < kDtypeCount; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    if (dlpack_code(dtype) == tensor.dtype_code && size_of(dtype) * 8 == tensor.dtype_bits) return i;
  }
  return -1;
}

void write_contiguous_strides(const std::int64_t* shape, int rank, std::int64_t* strides) noexcept {
  std::int64_t next = 1;
  for (int i = rank - 1; i >= 0; --i) strides[i] = next, next *= std::max<std::int64_t>(shape[i], 1);
}

bool is_broadcast(const kiln_tensor& t) noexcept {
  bool out = false;
  for (int i = 0; t.strides && i < t.ndim; ++i) out |= t.shape[i] > 1 && t.strides[i] == 0;
  return out && elements_of(t) > 0;
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
