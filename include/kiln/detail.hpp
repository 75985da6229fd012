// The seam between the C ABI and the inline C++ layer; not for use by programs.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "kiln/error.hpp"
#include "kiln/kiln.h"
#include "kiln/specialization.hpp"

namespace kiln {
inline namespace v1 {
namespace detail {

[[noreturn]] inline void raise() {
  const kiln_error* e = kiln_last_error();
  const auto code = static_cast<Errc>(e->status);
  if (code == Errc::compile_failed || code == Errc::compile_timeout || code == Errc::compile_crashed) {
    throw CompileError(code, e->message, e->specialization, e->options, e->log);
  }
  throw Error(code, e->message);
}

inline void check(kiln_status status) {
  if (status != KILN_OK) raise();
}

constexpr kiln_value to_c(const Value& v) noexcept {
  return {static_cast<std::int32_t>(v.kind), static_cast<std::int32_t>(v.text.size()), v.integer,
          v.text.data()};
}

template <class T>
constexpr kiln_arg_type arg_type() noexcept {
  static_assert(std::is_trivially_copyable_v<T>, "kernel arguments are copied by their bytes");
  constexpr std::uint32_t kind = std::is_pointer_v<T> || std::is_null_pointer_v<T> ? KILN_ARG_POINTER
                                 : std::is_floating_point_v<T>                     ? KILN_ARG_FLOAT
                                 : std::is_integral_v<T> && std::is_signed_v<T>    ? KILN_ARG_SIGNED
                                 : std::is_integral_v<T>                           ? KILN_ARG_UNSIGNED
                                                                                   : KILN_ARG_BYTES;
  return {kind, sizeof(T)};
}

/// One array per list of argument types, so that its address stands for the types.
template <class... T>
struct ArgTypes {
  static constexpr kiln_arg_type value[sizeof...(T) + 1] = {arg_type<T>()..., {}};
};

}  // namespace detail
}  // namespace v1
}  // namespace kiln
