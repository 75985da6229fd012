// The shape of a call: dtypes, shapes, strides and the values of scalars. Everything but addresses follows from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/operator/tensor.hpp"

namespace kiln::runtime {

/// Two calls of one operator with equal shapes launch the same kernel with the same arguments, but for pointers.
class CallShape {
 public:
  /// Takes nothing from a call that is large, or wrong in a way that the checks say better. No call is like such a
  /// shape.
  explicit CallShape(const kiln_call& call) {
    constexpr std::size_t kMost = 512;
    const bool whole = each_word(call, [&](std::int64_t word) {
      words_.push_back(word);
      return words_.size() < kMost;
    });
    if (!whole) words_.clear();
  }
  bool empty() const noexcept { return words_.empty(); }
  /// Allocates nothing.
  [[gnu::always_inline]] bool is_of(const kiln_call& call) const noexcept {
    const std::int64_t* at = words_.data();
    const std::int64_t* const end = at + words_.size();
    return each_word(
               call, [&](std::int64_t word)
                         __attribute__((always_inline)) { return at != end && *at++ == word; }) &&
           at == end && !words_.empty();
  }
  friend bool operator==(const CallShape&, const CallShape&) = default;

 private:
  /// Gives the words of the call to `each`, until that returns false. Returns false then, and for a wrong call.
  template <class Each>
  [[gnu::always_inline]] static bool each_word(const kiln_call& call, Each&& each) {
    if (call.count > 0 && !call.operands) return false;
    for (std::size_t i = 0; i < call.count; ++i) {
      const kiln_operand& o = call.operands[i];
      bool good = false;
      if (o.kind == KILN_OPERAND_TENSOR)
        good = o.tensor && each_of_tensor(*o.tensor, each);
      else if (o.kind == KILN_OPERAND_NONE)
        good = each(o.kind);
      else if (o.kind == KILN_OPERAND_INTEGER || o.kind == KILN_OPERAND_FLOAT)
        good = each(o.kind) && each(o.integer);  // or the bits of `number`
      else if (o.kind == KILN_OPERAND_TEXT)
        good = o.text &&
               each_of_bytes(o.kind, o.text,
                             o.count < 0 ? std::strlen(o.text) : static_cast<std::size_t>(o.count), each);
      else if (o.kind == KILN_OPERAND_FLOATS)
        good = o.numbers && o.count >= 0 &&
               each_of_bytes(o.kind, o.numbers, static_cast<std::size_t>(o.count) * sizeof(double), each);
      if (!good) return false;
    }
    return true;
  }
  template <class Each>
  [[gnu::always_inline]] static bool each_of_tensor(const kiln_tensor& t, Each&& each) {
    if (t.ndim < 0 || t.ndim > kMaxRank || (t.ndim > 0 && !t.shape)) return false;
    std::uint32_t dtype;
    static_assert(offsetof(kiln_tensor, dtype_lanes) == offsetof(kiln_tensor, dtype_code) + 2);
    std::memcpy(&dtype, &t.dtype_code, sizeof dtype);
    const std::int64_t device =
        static_cast<std::int64_t>(t.device_type) << 32 | static_cast<std::uint32_t>(t.device_id);
    const std::int64_t kind = KILN_OPERAND_TENSOR | t.ndim << 8 | (t.strides != nullptr) << 16;
    if (!each(kind | static_cast<std::int64_t>(dtype) << 32) || !each(device)) return false;
    for (int i = 0; i < t.ndim; ++i)
      if (!each(t.shape[i])) return false;
    for (int i = 0; t.strides && i < t.ndim; ++i)
      if (!each(t.strides[i])) return false;
    return true;
  }
  template <class Each>
  static bool each_of_bytes(std::int64_t kind, const void* data, std::size_t size, Each&& each) {
    if (!each(kind) || !each(static_cast<std::int64_t>(size))) return false;
    for (std::size_t at = 0; at < size; at += sizeof(std::int64_t)) {
      std::int64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(data) + at,
                  size - at < sizeof word ? size - at : sizeof word);
      if (!each(word)) return false;
    }
    return true;
  }

  std::vector<std::int64_t> words_;
};

}  // namespace kiln::runtime
