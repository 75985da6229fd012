#include "expression/braces.hpp"

namespace kiln::source {

Braces split_braces(std::string_view text) {
  Braces out;
  std::string literal;
  const auto flush = [&] {
    if (!literal.empty()) out.pieces.push_back({std::move(literal), false});
    literal.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool doubled = i + 1 < text.size() && text[i + 1] == c;
    if ((c == '{' || c == '}') && doubled) {
      literal += c;
      ++i;
    } else if (c == '}') {
      out.problem = "has a '}' without '{' (a literal brace is written twice)";
      return out;
    } else if (c == '{') {
      const auto end = text.find_first_of("{}", i + 1);
      if (end == std::string_view::npos || text[end] == '{') {
        out.problem = "has a '{' without '}' (a literal brace is written twice)";
        return out;
      }
      flush();
      out.pieces.push_back({std::string(text.substr(i + 1, end - i - 1)), true});
      i = end;
    } else {
      std::size_t end = i + 1;
      while (end < text.size() && text[end] != '{' && text[end] != '}') ++end;
      literal += text.substr(i, end - i);
      i = end - 1;
    }
  }
  flush();
  return out;
}

}  // namespace kiln::source
