// Parameter values as a caller gives them, and the specialisation that they resolve to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kiln/dtype.hpp"

namespace kiln {
inline namespace v1 {

/// The value of one parameter. It converts from integers, bool, Dtype and text.
/// Text is accepted for every kind of parameter: "bf16", "4096", "true", the name of an enum value.
/// The text is not copied, so it must outlive the Value.
struct Value {
  enum class Kind : std::int32_t { unset = 0, integer = 1, boolean = 2, dtype = 3, text = 4 };

  /// An unsigned number that does not fit becomes INT64_MIN, which no parameter allows.
  template <class T>
  static constexpr std::int64_t as_integer(T value) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::int64_t))
      return value > static_cast<T>(INT64_MAX) ? INT64_MIN : static_cast<std::int64_t>(value);
    else
      return static_cast<std::int64_t>(value);
  }

  Kind kind = Kind::unset;  ///< unset: use the manifest's default
  std::int64_t integer = 0;
  std::string_view text;

  constexpr Value() = default;
  /// Takes bool alone. Pointers and floating-point numbers would convert to bool.
  template <class T, std::enable_if_t<std::is_same_v<T, bool>, int> = 0>
  constexpr Value(T value) : kind(Kind::boolean), integer(value) {}
  constexpr Value(Dtype value) : kind(Kind::dtype), integer(static_cast<std::int64_t>(value)) {}
  template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  constexpr Value(T value) : kind(Kind::integer), integer(as_integer(value)) {}
  Value(std::nullptr_t) = delete;
  constexpr Value(const char* value) : kind(Kind::text), text(value) {}
  constexpr Value(std::string_view value) : kind(Kind::text), text(value) {}
  Value(const std::string& value) : kind(Kind::text), text(value) {}
};

/// A parameter by name: {"H", 4096}.
struct NamedValue {
  std::string_view name;
  Value value;
};

/// A parameter with its resolved value as text: {"T", "bf16"}, {"H", "4096"}, {"GEMMA", "false"}.
struct Parameter {
  std::string name, value;
  friend bool operator==(const Parameter& a, const Parameter& b) {
    return a.name == b.name && a.value == b.value;
  }
};

/// A template's name with the resolved value of every parameter, in the manifest's order.
struct Specialization {
  std::string template_name;
  std::vector<Parameter> parameters;

  /// "rms_norm T=bf16 H=4096".
  std::string to_string() const {
    std::string out = template_name;
    for (const Parameter& p : parameters) out += ' ' + p.name + '=' + p.value;
    return out;
  }
  friend bool operator==(const Specialization& a, const Specialization& b) {
    return a.template_name == b.template_name && a.parameters == b.parameters;
  }
};

}  // namespace v1
}  // namespace kiln
