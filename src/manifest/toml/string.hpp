// Text as TOML has it.
#pragma once

#include <string>
#include <string_view>

namespace kiln::source {

/// A byte that TOML wants escaped, and that no line of a manifest has.
constexpr bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// A basic string: in double quotes, with control characters escaped.
std::string toml_string(std::string_view text);

}  // namespace kiln::source
