// The shape of a call: dtypes, shapes, strides and the values of scalars. Everything but addresses follows from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/operator/tensor.hpp"

namespace kiln::runtime {

/// Two calls with equal words launch the same kernel with the same arguments, but for pointers.
class CallShape {
 public:
  /// Returns false when the call is too large, or is wrong in a way that the checks say better.
  bool set(const kiln_call& call) noexcept {
    for (std::size_t i = 0; i < call.count; ++i)
      if (!add(call.operands[i])) return false;
    return true;
  }
  bool is(const std::vector<std::int64_t>& words) const noexcept {
    return words.size() == size_ && std::memcmp(words.data(), words_.data(), size_ * sizeof words_[0]) == 0;
  }
  std::vector<std::int64_t> words() const {
    return {words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(size_)};
  }

 private:
  static constexpr std::size_t kMost = 256;

  bool add(const kiln_operand& operand) noexcept {
    constexpr std::size_t kLargest = 2 + 2 * kMaxRank;
    if (size_ + kLargest > kMost) return false;
    std::int64_t* const to = &words_[size_];
    to[0] = operand.kind;
    switch (operand.kind) {
      case KILN_OPERAND_NONE:
        size_ += 1;
        return true;
      case KILN_OPERAND_TENSOR:
        return operand.tensor && add_tensor(*operand.tensor);
      case KILN_OPERAND_INTEGER:
      case KILN_OPERAND_FLOAT:
        to[1] = operand.integer;  // or the bits of `number`
        size_ += 2;
        return true;
      case KILN_OPERAND_TEXT:
        return operand.text &&
               add_bytes(operand.text, operand.count < 0 ? std::strlen(operand.text)
                                                         : static_cast<std::size_t>(operand.count));
      case KILN_OPERAND_FLOATS:
        return operand.numbers && operand.count >= 0 &&
               add_bytes(operand.numbers, static_cast<std::size_t>(operand.count) * sizeof(double));
      default:
        return false;
    }
  }
  bool add_tensor(const kiln_tensor& t) noexcept {
    if (t.ndim < 0 || t.ndim > kMaxRank || (t.ndim > 0 && !t.shape)) return false;
    std::int64_t* to = &words_[size_];
    const std::uint32_t dtype = t.dtype_code | static_cast<std::uint32_t>(t.dtype_bits) << 8 |
                                static_cast<std::uint32_t>(t.dtype_lanes) << 16;
    to[0] |= t.ndim << 8 | (t.strides != nullptr) << 16 | static_cast<std::int64_t>(dtype) << 32;
    to[1] = static_cast<std::int64_t>(t.device_type) << 32 | static_cast<std::uint32_t>(t.device_id);
    to += 2;
    for (int i = 0; i < t.ndim; ++i) *to++ = t.shape[i];
    for (int i = 0; t.strides && i < t.ndim; ++i) *to++ = t.strides[i];
    size_ = static_cast<std::size_t>(to - words_.data());
    return true;
  }
  bool add_bytes(const void* data, std::size_t size) noexcept {
    if (size > 2 * kMaxRank * sizeof(std::int64_t)) return false;
    const std::size_t words = (size + 7) / 8;
    std::int64_t* const to = &words_[size_];
    to[1] = static_cast<std::int64_t>(size);
    if (words) to[1 + words] = 0;  // the last word may be filled in part
    std::memcpy(to + 2, data, size);
    size_ += 2 + words;
    return true;
  }

  std::array<std::int64_t, kMost> words_;
  std::size_t size_ = 0;
};

}  // namespace kiln::runtime
