#include "overlay/blank.hpp"

#include <vector>

namespace kiln::source {

void blank(std::string& text, std::size_t begin, std::size_t end) {
  const std::string_view original = std::string_view(text).substr(begin, end - begin);
  std::string blanked(original.size(), ' ');
  for (std::size_t i = 0; i < original.size(); ++i)
    if (original[i] == '\n') blanked[i] = '\n';
  for (const Token& token : tokens_of(original)) {
    if (token.kind != Token::Kind::directive) continue;
    const DirectiveText d = directive_text(token.text);
    if (d.name == "pragma" && is_statement_pragma(d.rest)) continue;
    const auto at = static_cast<std::size_t>(token.text.data() - original.data());
    blanked.replace(at, token.text.size(), token.text);
  }
  text.replace(begin, blanked.size(), blanked);
}

void blank_body(std::string& text, const Declaration& d, std::string_view end) {
  const std::string_view head = std::string_view(text).substr(d.begin, d.body_begin - d.begin);
  std::vector<std::size_t> marks;
  for (const Token& token : tokens_of(head))
    if (token.is("__host__")) marks.push_back(static_cast<std::size_t>(token.text.data() - text.data()));
  blank(text, d.body_begin, d.end);
  text[d.body_begin] = end.front();
  if (end.size() > 1) {  // a '}', which must not take the place of a line end
    const bool blank_follows = text[d.body_begin + 1] == ' ';
    text[blank_follows ? d.body_begin + 1 : d.end - 1] = end.back();
  }
  for (const std::size_t at : marks) text.replace(at, 8, 8, ' ');
}

}  // namespace kiln::source
