#include "overlay/included.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "overlay/brackets.hpp"

namespace kiln::source {
namespace {

class IncludeFinder {
 public:
  IncludeFinder(const std::vector<std::vector<Token>>& tokens, const std::vector<std::string>& paths)
      : tokens_(tokens), paths_(paths) {
    out_.contains.assign(tokens.size(), false);
  }

  IncludedTexts run(const std::vector<Piece>& pieces) {
    std::vector<std::size_t> from(
        tokens_.size());  // the first token whose #include may stand in a declaration
    for (std::size_t i = 0; i < tokens_.size(); ++i) from[i] = tokens_[i].size();
    for (const Piece& piece : pieces) {
      const TokenRange range = piece.declaration.tokens;
      if (!piece.declaration.paired) from[piece.text] = std::min(from[piece.text], range.begin);
      if (!piece.declaration.includes) continue;
      for (std::size_t t = range.begin; t < range.end; ++t) include(tokens_[piece.text][t]);
    }
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      for (std::size_t t = from[i]; t < tokens_[i].size(); ++t) include(tokens_[i][t]);
    return std::move(out_);
  }

 private:
  void include(const Token& token) {
    if (token.kind != Token::Kind::directive) return;
    const DirectiveText d = directive_text(token.text);
    if (!d.name.starts_with("include")) return;
    const std::size_t open = d.rest.find_first_of("\"<");
    // The name of the file is all that is compared, and a computed one may be any file.
    const std::string_view path = open == d.rest.npos ? std::string_view() : d.rest.substr(open + 1);
    const std::string_view name = path.substr(path.substr(0, path.find_first_of("\">")).rfind('/') + 1);
    const std::string_view file = name.substr(0, name.find_first_of("\">"));
    for (std::size_t i = 0; i < tokens_.size() && i < paths_.size(); ++i) {
      const std::string_view known = paths_[i];
      if (out_.contains[i] || known.empty()) continue;
      if (!file.empty() && known.substr(known.rfind('/') + 1) != file) continue;
      out_.contains[i] = true;
      for (const std::string_view word : TokenView(tokens_[i]).words(0, tokens_[i].size()))
        out_.words.push_back(word);
      for (const Token& inner : tokens_[i]) include(inner);
    }
  }

  const std::vector<std::vector<Token>>& tokens_;
  const std::vector<std::string>& paths_;
  IncludedTexts out_;
};

}  // namespace

IncludedTexts find_included(const std::vector<Piece>& pieces, const std::vector<std::vector<Token>>& tokens,
                            const std::vector<std::string>& paths) {
  return IncludeFinder(tokens, paths).run(pieces);
}

}  // namespace kiln::source
