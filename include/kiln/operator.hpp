// Operators: calls with tensors. kiln finds parameters, arguments and outputs in them ([bind] of a manifest).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kiln/detail.hpp"
#include "kiln/dtype.hpp"
#include "kiln/kiln.h"

namespace kiln {
inline namespace v1 {

/// A tensor in device memory, by pointer, dtype, shape and strides. It owns none of the data.
class TensorView {
 public:
  /// Contiguous. At most 8 dimensions; further ones are refused by the call.
  TensorView(void* data, Dtype dtype, std::initializer_list<std::int64_t> shape, int device = 0)
      : TensorView(data, dtype, shape, {}, device) {}
  TensorView(const void* data, Dtype dtype, std::initializer_list<std::int64_t> shape, int device = 0)
      : TensorView(const_cast<void*>(data), dtype, shape, {}, device) {}
  /// With strides in elements, one for each dimension.
  TensorView(void* data, Dtype dtype, std::initializer_list<std::int64_t> shape,
             std::initializer_list<std::int64_t> strides, int device = 0) {
    view_.data = data;
    view_.device_type = kCuda, view_.device_id = device;
    view_.ndim = static_cast<std::int32_t>(shape.size());
    view_.dtype_code = dlpack_code(dtype);
    view_.dtype_bits = static_cast<std::uint8_t>(size_of(dtype) * 8);
    view_.dtype_lanes = 1;
    std::size_t i = 0;
    for (const std::int64_t extent : shape)
      if (i < kMost) shape_[i++] = extent;
    i = 0;
    for (const std::int64_t stride : strides)
      if (i < kMost) strides_[i++] = stride;
    strided_ = strides.size() != 0;
    if (strided_ && strides.size() != shape.size()) view_.ndim = -1;  // the call refuses it
  }

  /// Valid as long as this object is neither changed nor destroyed.
  const kiln_tensor* get() const noexcept {
    view_.shape = shape_.data();
    view_.strides = strided_ ? strides_.data() : nullptr;
    return &view_;
  }

 private:
  static constexpr std::size_t kMost = 8;
  static constexpr std::int32_t kCuda = 2;
  mutable kiln_tensor view_{};
  std::array<std::int64_t, kMost> shape_{}, strides_{};
  bool strided_ = false;
};

/// An input or an output of a call. It keeps pointers into what it was made from.
class Operand : public kiln_operand {
 public:
  /// Not given.
  Operand() noexcept : kiln_operand{} {}
  Operand(std::nullptr_t) noexcept : Operand() {}
  Operand(const TensorView& view) noexcept : Operand(view.get()) {}
  Operand(const kiln_tensor* from) noexcept : Operand() { take(from); }
  /// A DLTensor of DLPack, whose header need not be included.
  template <class T, class = decltype(std::declval<T>().byte_offset, std::declval<T>().dtype.lanes)>
  Operand(const T* from) noexcept : Operand() {
    static_assert(sizeof(T) == sizeof(kiln_tensor), "T is not DLPack's DLTensor");
    take(reinterpret_cast<const kiln_tensor*>(from));
  }
  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Operand(T value) noexcept : Operand() {
    kind = KILN_OPERAND_INTEGER, integer = static_cast<std::int64_t>(value);
  }
  Operand(Dtype value) noexcept : Operand(static_cast<std::int64_t>(value)) {}
  Operand(double value) noexcept : Operand() { kind = KILN_OPERAND_FLOAT, number = value; }
  Operand(const char* value) noexcept : Operand(std::string_view(value)) {}
  Operand(std::string_view value) noexcept : Operand() {
    kind = KILN_OPERAND_TEXT, text = value.data(), count = static_cast<std::int32_t>(value.size());
  }
  template <std::size_t N>
  Operand(const std::array<double, N>& values) noexcept : Operand() {
    kind = KILN_OPERAND_FLOATS, numbers = values.data(), count = static_cast<std::int32_t>(N);
  }

 private:
  void take(const kiln_tensor* from) noexcept {
    kind = from ? KILN_OPERAND_TENSOR : KILN_OPERAND_NONE;
    tensor = from;
  }
};

/// An operator that is bound to a device and a context. Thread-safe.
///
/// It is a view that a Service owns. Copies are cheap.
class Operator {
 public:
  explicit Operator(kiln_operator* handle) noexcept : handle_(handle) {}

  /// Checks the operands, gets the kernel and launches it (kiln_operator_call in kiln.h).
  ///
  /// The operands are the inputs in the order of the signature, then the outputs.
  ///
  ///     op(stream, x, weight, 1e-5, false, nullptr, nullptr, out);
  ///
  /// Throws Error and CompileError. REQUIRES: the operator's context is current.
  template <class... Operands>
  void operator()(CUstream stream, const Operands&... operands) const {
    const kiln_operand all[sizeof...(Operands) + 1] = {Operand(operands)..., kiln_operand{}};
    call(stream, all, sizeof...(Operands), nullptr, nullptr);
  }
  /// As operator(), where `allocate` makes the outputs that are not given (kiln_allocator in kiln.h).
  void call(CUstream stream, std::initializer_list<Operand> operands, kiln_allocator allocate,
            void* user = nullptr) const {
    call(stream, operands.begin(), operands.size(), allocate, user);
  }
  void call(CUstream stream, const kiln_operand* operands, std::size_t count, kiln_allocator allocate,
            void* user) const {
    call({sizeof(kiln_call), stream, operands, count, allocate, user, 0, 0});
  }
  /// As the others, with all that kiln_call says.
  void call(const kiln_call& whole) const { detail::check(kiln_operator_call(handle_, &whole)); }

  kiln_operator* get() const noexcept { return handle_; }

 private:
  kiln_operator* handle_;
};

static_assert(sizeof(Operand) == sizeof(kiln_operand), "arrays of operands are passed to C");

}  // namespace v1
}  // namespace kiln
