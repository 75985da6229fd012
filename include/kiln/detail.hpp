// The seam between the C ABI and the inline C++ layer. Programs do not use it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>

#include "kiln/device_ptr.hpp"
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

/// A C handle with its destructor.
template <class T, void (*release)(T*)>
struct Release {
  void operator()(T* handle) const noexcept { release(handle); }
};

constexpr kiln_value to_c(const Value& v) noexcept {
  return {static_cast<std::int32_t>(v.kind), static_cast<std::int32_t>(v.text.size()), v.integer,
          v.text.data()};
}

/// Parameters by name, for the C ABI. Allocates nothing when the names take at most 256 bytes together.
class Named {
 public:
  explicit Named(std::initializer_list<NamedValue> in) {
    std::size_t bytes = 0;
    for (const NamedValue& v : in) {
      bytes += v.name.size() + 1;
      if (v.name.find('\0') != std::string_view::npos)
        throw Error(Errc::unknown_parameter, "a parameter's name contains a zero");
    }
    if (in.size() > kMax) throw Error(Errc::invalid_argument, "more than 32 parameters were given");
    if (bytes > sizeof short_texts_) long_texts_.reset(new char[bytes]);
    char* at = long_texts_ ? long_texts_.get() : short_texts_;
    for (const NamedValue& v : in) {
      names[count] = at;
      values[count++] = to_c(v.value);
      at += v.name.copy(at, v.name.size());
      *at++ = '\0';
    }
  }
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;

  static constexpr std::size_t kMax = 32;
  const char* names[kMax];
  kiln_value values[kMax];
  std::size_t count = 0;

 private:
  char short_texts_[256];
  std::unique_ptr<char[]> long_texts_;
};

/// Parameters in the manifest's order. The last element keeps the array from being empty.
template <class... Args>
struct Positional {
  explicit constexpr Positional(const Args&... args) : values{to_c(Value(args))..., {}} {}
  static constexpr const char* const* names = nullptr;
  static constexpr std::size_t count = sizeof...(Args);
  kiln_value values[sizeof...(Args) + 1];
};

template <class T>
constexpr bool is_function_pointer = std::is_pointer_v<T>&& std::is_function_v<std::remove_pointer_t<T>>;

template <class T>
constexpr std::uint32_t arg_kind() noexcept {
  if (std::is_pointer_v<T> || std::is_null_pointer_v<T> || std::is_same_v<T, DevicePtr>)
    return KILN_ARG_POINTER;
  if (std::is_floating_point_v<T>) return KILN_ARG_FLOAT;
  if (std::is_integral_v<T>) return std::is_signed_v<T> ? KILN_ARG_SIGNED : KILN_ARG_UNSIGNED;
  return KILN_ARG_BYTES;
}

/// A type that can never be an argument does not compile.
/// The launch refuses a type that its kernel does not take.
template <class T>
constexpr kiln_arg_type arg_type() noexcept {
  static_assert(!std::is_array_v<T>,
                "an array is no kernel argument: pass a pointer to device memory, or a struct that holds it");
  static_assert(!std::is_function_v<T> && !is_function_pointer<T> && !std::is_member_pointer_v<T>,
                "functions and members of the host mean nothing to a kernel");
  static_assert(std::is_trivially_copyable_v<T>,
                "kernel arguments are copied by their bytes: pass a trivially copyable type (of a container, "
                "its elements in device memory)");
  static_assert(sizeof(T) <= 32764, "kernel arguments take at most 32764 bytes together");
  if constexpr (std::is_enum_v<T>)
    return arg_type<std::underlying_type_t<T>>();
  else
    return {arg_kind<T>(), sizeof(T)};
}

/// The types of the arguments. The last element keeps the array from being empty.
template <class... T>
struct ArgTypes {
  static constexpr kiln_arg_type value[sizeof...(T) + 1] = {arg_type<T>()..., {}};
};

}  // namespace detail
}  // namespace v1
}  // namespace kiln
