#include "overlay/parameters.hpp"

#include <algorithm>
#include <array>

#include "overlay/brackets.hpp"

namespace kiln::source {
namespace {

bool belongs_to_type(std::string_view word) {
  constexpr std::array<std::string_view, 10> kTypes = {"int",   "long",   "short", "char",  "unsigned",
                                                       "float", "double", "bool",  "const", "signed"};
  return std::find(kTypes.begin(), kTypes.end(), word) != kTypes.end();
}

}  // namespace

std::optional<std::vector<std::string>> parameter_types(const Declaration& d, std::string_view text) {
  const std::vector<Token> tokens = tokens_of(text.substr(d.begin, d.end - d.begin));
  const TokenView view(tokens);
  if (tokens.empty() || view[0].is("template") || d.names.empty()) return std::nullopt;
  std::size_t open = 1;
  while (open < view.size() && !(view[open].is("(") && view[open - 1].is(d.names.back()))) ++open;
  if (open >= view.size()) return std::nullopt;
  std::vector<std::string> out;
  std::size_t after = view.after_group(open, view.size());
  for (TokenRange range : view.pieces(open + 1, after - 1)) {
    for (std::size_t t = range.begin; t < range.end; ++t)
      if (view[t].is("=")) range.end = t;
    // The last of several words is the parameter's name, unless it belongs to the type.
    const Token& last = view[range.end - 1];
    const bool name = range.end - range.begin > 1 && last.is_word() && !view[range.end - 2].is("::") &&
                      !belongs_to_type(last.text);
    std::string& type = out.emplace_back();
    for (std::size_t t = range.begin; t < range.end - (name ? 1 : 0); ++t)
      type += std::string(view[t].text) + ' ';
  }
  for (; view[after].is("const") || view[after].is("volatile") || view[after].is("&"); ++after)
    out.emplace_back(view[after].text);
  return out;
}

}  // namespace kiln::source
