#include "overlay/namespaces.hpp"

#include <algorithm>
#include <array>

#include "overlay/brackets.hpp"

namespace kiln::source {
namespace {

/// Namespaces of headers that the cut does not read: of the toolkit, and kiln's shims and stubs.
constexpr std::array<std::string_view, 16> kLibraries = {
    "std", "cuda",   "cub", "thrust", "cooperative_groups", "nvcuda", "nv", "nvstd", "torch", "kiln", "c10",
    "at",  "caffe2", "rmm", "nvtx3",  "headeronly"};

bool is_library(std::string_view word) {
  return std::find(kLibraries.begin(), kLibraries.end(), word) != kLibraries.end();
}

}  // namespace

Namespaces::Namespaces(const std::vector<std::vector<Token>>& tokens, const Macros& macros) {
  for (const std::vector<Token>& of_text : tokens) note_names(of_text);
  for (const std::string_view word : namespaces_) unsure_ = unsure_ || macros.find(word);
}

/// Notes the words that may be names of namespaces or types: they stand somewhere without a `::` after them.
void Namespaces::note_names(const std::vector<Token>& tokens) {
  const TokenView view(tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool in_namespace = i > 0 && view[i - 1].is("namespace");
    const bool directive = in_namespace && i > 1 && view[i - 2].is("using");
    if (view[i].kind == Token::Kind::directive) {
      const DirectiveText d = directive_text(view[i].text);
      if (!d.name.starts_with("include")) note_names(tokens_of(d.rest));
    } else if (directive) {
      unsure_ = unsure_ || is_library(view[i].text);
    } else if (in_namespace || !view[i + 1].is("::")) {
      names_.insert(view[i].text);
      if (in_namespace) namespaces_.insert(view[i].text);
    }
  }
}

bool Namespaces::are_unknown_in(std::string_view head, std::string_view scope) const {
  if (unsure_ || is_library(scope.substr(0, scope.find("::")))) return false;
  const std::vector<Token> tokens = tokens_of(head);
  const TokenView view(tokens);
  for (std::size_t t = 0; t < view.size(); ++t) {
    if (!view[t].is_word() || !view[t + 1].is("::") || (t > 0 && view[t - 1].is("::"))) continue;
    if (!names_.contains(view[t].text) && !is_library(view[t].text)) return true;
  }
  return false;
}

}  // namespace kiln::source
