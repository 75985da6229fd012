// Element types of kernel parameters and pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln {
inline namespace v1 {

/// Element types. New ones are appended: the ordinals are part of the C ABI and of manifests' expressions.
/// ue8m0 is an exponent without a sign, of value 2^(bits - 127); its bits 255 are NaN.
enum class Dtype : std::int32_t { f32 = 0, f16, bf16, e4m3, e5m2, f64, i8, u8, i32, u32, i64, u64, ue8m0 };

inline constexpr std::string_view kDtypeNames[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "f64",  "i8",
                                                   "u8",  "i32", "u32",  "i64",  "u64",  "ue8m0"};
inline constexpr int kDtypeCount = 13;

constexpr std::string_view to_string(Dtype type) noexcept { return kDtypeNames[static_cast<int>(type)]; }

/// Bytes of one element.
constexpr std::size_t size_of(Dtype type) noexcept {
  constexpr std::size_t sizes[] = {4, 2, 2, 1, 1, 8, 1, 1, 4, 4, 8, 8, 1};
  return sizes[static_cast<int>(type)];
}

/// DLPack's code of the type: 0 signed, 1 unsigned, 2 floating-point, 4 bfloat16, 10 e4m3fn, 12 e5m2, 14 e8m0fnu.
constexpr std::uint8_t dlpack_code(Dtype type) noexcept {
  constexpr std::uint8_t codes[] = {2, 2, 4, 10, 12, 2, 0, 1, 0, 1, 0, 1, 14};
  return codes[static_cast<int>(type)];
}

/// True if the type is a signed or unsigned integer.
constexpr bool is_integer(Dtype type) noexcept { return dlpack_code(type) <= 1; }

/// The dtype of a name such as "bf16". Returns nothing for an unknown name.
constexpr std::optional<Dtype> dtype_from(std::string_view name) noexcept {
  for (int i = 0; i < kDtypeCount; ++i)
    if (kDtypeNames[i] == name) return static_cast<Dtype>(i);
  return std::nullopt;
}

}  // namespace v1
}  // namespace kiln
