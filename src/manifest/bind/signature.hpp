// The signature of an operator: "x: T[..., H], weight: T[H], eps: float = 1e-6, scale: f32[1]?".
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace kiln::source {

/// A part of a signature, as its text says it.
struct SignaturePart {
  std::string name;
  std::string type;                 ///< "T", "float", "(packed ? i32 : f32)": what stands before the shape
  std::vector<std::string> shapes;  ///< "..., H": the texts in brackets. None: the part is no tensor
  bool written = false;             ///< "!" follows
  bool optional = false;            ///< "?" follows
  std::string fallback;             ///< the text after "="
  std::string strides;              ///< the text in brackets after "by"
};

/// Throws std::invalid_argument with what was expected, and where.
std::vector<SignaturePart> parse_signature(std::string_view text);

/// The texts between the commas of a list that are in no parentheses, without the blanks around them.
std::vector<std::string> split_list(std::string_view text);

/// The whole text as a number, or nothing.
template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

}  // namespace kiln::source
