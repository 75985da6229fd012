// Small text functions that several rooms need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::base {

/// Pieces between separators; empty pieces are dropped.
std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& items, std::string_view separator);
/// Returns "; did you mean 'H'?" for the nearest candidate within a small edit distance, or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
/// True for [A-Za-z0-9_]
constexpr bool is_identifier_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
/// True for [A-Za-z_][A-Za-z0-9_]*
bool is_identifier(std::string_view text) noexcept;
/// "600", "0.5", "1e-06": at most six significant digits, as printf's %g writes them.
std::string decimal(double number);
/// Two digits for each byte: "6b00ff".
std::string hex(std::string_view bytes);
/// The value of an environment variable; empty when it is not set. The view is valid until the variable
/// is changed.
std::string_view environment(const char* name) noexcept;

}  // namespace kiln::base
