// A caller's tensor, as the binder reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kiln/dtype.hpp"
#include "kiln/kiln.h"
#include "manifest/bind/spec.hpp"

namespace kiln::runtime {

using source::kMaxRank;

/// The ordinal of the tensor's dtype; -1 when kiln has no such dtype. A boolean is a u8.
int dtype_of(const kiln_tensor& tensor) noexcept;

/// In elements. Of a tensor without strides, which is contiguous, the stride is computed.
inline std::int64_t stride_of(const kiln_tensor& t, int dimension) noexcept {
  if (t.strides) return t.strides[dimension];
  std::int64_t out = 1;
  for (int i = dimension + 1; i < t.ndim; ++i) out *= t.shape[i];
  return out;
}
inline std::int64_t elements_of(const kiln_tensor& t) noexcept {
  std::int64_t out = 1;
  for (int i = 0; i < t.ndim; ++i) out *= t.shape[i];
  return out;
}
/// The address of the first element. torch's tensors without elements have no address. A kernel takes null for a
/// tensor that is not given, so such a tensor gets an aligned address, which nothing reads. Each operand of a call
/// gets another one, because rules of templates compare addresses.
inline std::uint64_t address_of(const kiln_tensor& t, std::size_t operand) noexcept {
  constexpr std::uint64_t kAligned = 4096;
  if (!t.data && elements_of(t) == 0) [[unlikely]]
    return kAligned * (operand + 1);
  return reinterpret_cast<std::uint64_t>(t.data) + t.byte_offset;
}
/// Writes the strides of a contiguous tensor of this shape. As in torch, an extent of 0 counts as 1.
void write_contiguous_strides(const std::int64_t* shape, int rank, std::int64_t* strides) noexcept;
/// True when several elements have one address, because a dimension is broadcast.
bool is_broadcast(const kiln_tensor& t) noexcept;
/// Strides of dimensions of one element do not count.
bool is_contiguous(const kiln_tensor& t) noexcept;

/// Dimensions 0 up to, but without, `end`, seen as one.
struct Joined {
  std::int64_t extent = 1, stride = 0;
  bool possible = true;  ///< no stride reaches all of them in order
};
Joined join_leading(const kiln_tensor& t, int end) noexcept;

/// "bf16 [8, 4096]", and " with strides [8192, 1]" where the tensor is not contiguous.
std::string described(const kiln_tensor& t);

}  // namespace kiln::runtime
