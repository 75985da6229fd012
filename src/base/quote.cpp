#include "base/quote.hpp"

namespace kiln::base {

std::string quote(std::string_view text, std::size_t limit) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + (text.size() > limit ? "...'" : "'");
}

}  // namespace kiln::base
