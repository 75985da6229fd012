// Splits a key or signature file into lines, and names the comments that begin them.
#pragma once

#include <string_view>

namespace kiln::trust {

/// Takes the next line off `text`, without its end ("\n" or "\r\n").
inline std::string_view take_line(std::string_view& text) noexcept {
  const auto end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

inline constexpr std::string_view kUntrusted = "untrusted comment: ", kTrusted = "trusted comment: ";

}  // namespace kiln::trust
