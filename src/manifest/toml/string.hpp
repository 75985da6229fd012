// Texts in TOML's notation.
#pragma once

#include <string>
#include <string_view>

namespace kiln::source {

/// True for a byte that TOML requires to be escaped, and that no line of a manifest may have.
constexpr bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// `text` as a basic string: in double quotes, with control characters escaped.
std::string toml_string(std::string_view text);

}  // namespace kiln::source
