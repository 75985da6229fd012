#include "manifest/toml/string.hpp"

namespace kiln::source {

std::string toml_string(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out.append({'\\', c});
    else if (is_control(c))
      out.append("\\u00").append({digits[byte >> 4], digits[byte & 15]});
    else
      out += c;
  }
  return out + '"';
}

}  // namespace kiln::source
