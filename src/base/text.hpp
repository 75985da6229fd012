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
/// True for [A-Za-z_][A-Za-z0-9_]*
bool is_identifier(std::string_view text) noexcept;

}  // namespace kiln::base
