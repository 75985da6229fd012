// An integer argument of a launch, as the caller has it.
#pragma once

#include <cstdint>
#include <cstring>

#include "kiln/kiln.h"

namespace kiln::runtime {

inline bool is_given_integer(kiln_arg_type type) noexcept {
  const bool width = type.size == 1 || type.size == 2 || type.size == 4 || type.size == 8;
  return width && (type.kind == KILN_ARG_SIGNED || type.kind == KILN_ARG_UNSIGNED);
}

template <class T>
std::int64_t read_as(const void* data) noexcept {
  T value;
  std::memcpy(&value, data, sizeof value);
  return static_cast<std::int64_t>(value);
}

/// An unsigned integer beyond the signed range becomes negative. REQUIRES: is_given_integer(type).
inline std::int64_t read_given_integer(kiln_arg_type type, const void* data) noexcept {
  const bool is_signed = type.kind == KILN_ARG_SIGNED;
  switch (type.size) {
    case 1:
      return is_signed ? read_as<std::int8_t>(data) : read_as<std::uint8_t>(data);
    case 2:
      return is_signed ? read_as<std::int16_t>(data) : read_as<std::uint16_t>(data);
    case 4:
      return is_signed ? read_as<std::int32_t>(data) : read_as<std::uint32_t>(data);
    default:
      return read_as<std::int64_t>(data);
  }
}

}  // namespace kiln::runtime
