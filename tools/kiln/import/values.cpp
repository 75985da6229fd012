#include "tools/kiln/import/values.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace kiln::cli {
namespace {

using source::Declaration;
using source::TokenRange;
using source::TokenView;

/// Words that mean the same at every place of a program.
constexpr std::array<std::string_view, 31> kGlobalWords = {
    "true",    "false",    "float",         "double",      "int",      "unsigned", "signed",   "long",
    "short",   "char",     "bool",          "half",        "__half",   "half2",    "nullptr",  "void",
    "const",   "size_t",   "__nv_bfloat16", "nv_bfloat16", "std",      "sizeof",   "int8_t",   "uint8_t",
    "int32_t", "uint32_t", "int64_t",       "int16_t",     "uint16_t", "uint64_t", "ptrdiff_t"};

bool is_global(std::string_view word) {
  return std::find(kGlobalWords.begin(), kGlobalWords.end(), word) != kGlobalWords.end();
}
/// True when `inner` is `outer` or a namespace in it.
bool lies_in(std::string_view inner, std::string_view outer) {
  return outer.empty() || (inner.starts_with(outer) &&
                           (inner.size() == outer.size() || inner.substr(outer.size()).starts_with("::")));
}

/// True when the declaration around a use declares one of the words of `value` before it: a local constant, or a
/// parameter of a template. The name then does not mean what it means outside.
bool is_local(const SourceText& text, std::size_t use, const TokenRange& value) {
  const TokenView tokens(text.tokens);
  const auto around = [&](const Declaration& d) { return d.tokens.begin < use && use < d.tokens.end; };
  const auto found = std::find_if(text.declarations.begin(), text.declarations.end(), around);
  if (found == text.declarations.end()) return false;
  for (std::size_t v = value.begin; v < value.end; ++v) {
    if (!tokens[v].is_word() || tokens[v - 1].is("::")) continue;
    for (std::size_t i = found->tokens.begin + 1; i < use; ++i) {
      const Token &before = tokens[i - 1], &after = tokens[i + 1];
      if (!tokens[i].is(tokens[v].text) || before.is("return") || before.is("case") || before.is("else"))
        continue;
      // "* N;" and "> N," are operators.
      const bool symbol = before.is(">") || before.is("*") || before.is("&");
      if (symbol && after.is("=") && !tokens[i + 2].is("=")) return true;
      for (const char* next : {"=", ";", "{", ",", ">", "["})
        if (before.is_word() && after.is(next)) return true;
    }
  }
  return false;
}

}  // namespace

SourceValues::SourceValues(const SourceTexts& texts, const KernelDeclaration& kernel)
    : texts_(texts), kernel_(kernel) {
  for (const SourceText& text : texts.all()) {
    for (const Declaration& d : text.declarations) {
      for (const std::string_view name : d.names) scopes_[name].insert(d.scope);
      const std::string_view scope = d.scope;
      for (std::size_t at = 0, end; at < scope.size(); at = end + 2) {
        end = std::min(scope.find("::", at), scope.size());
        scopes_[scope.substr(at, end - at)].insert(scope.substr(0, at > 1 ? at - 2 : 0));
      }
      if (d.kind == source::DeclarationKind::named) add_enum(text, d);
    }
  }
}

void SourceValues::add_enum(const SourceText& text, const Declaration& declaration) {
  const TokenView tokens(text.tokens);
  std::size_t at = declaration.tokens.begin;
  while (at < declaration.tokens.end && !tokens[at].is("enum") && !tokens[at].is("{")) ++at;
  if (!tokens[at].is("enum")) return;
  ++at;
  if (tokens[at].is("class") || tokens[at].is("struct")) ++at;
  if (!tokens[at].is_word()) return;
  const std::string name(tokens[at].text);
  EnumDeclaration& added = enums_[name];
  added = {declaration.scope.empty() ? name : declaration.scope + "::" + name, {}};
  while (at < declaration.tokens.end && !tokens[at].is("{")) ++at;
  const std::size_t close = tokens.after_group(at, declaration.tokens.end);
  for (const TokenRange& piece : tokens.pieces(at + 1, std::max(close, at + 2) - 1))
    if (tokens[piece.begin].is_word()) added.values.emplace_back(tokens[piece.begin].text);
}

const EnumDeclaration* SourceValues::enumeration(const std::string& type) const {
  const auto found = enums_.find(type.substr(type.rfind(':') + 1));
  return found == enums_.end() ? nullptr : &found->second;
}

std::string SourceValues::qualified(const Tokens& text) const {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Token& t = text[i];
    const bool word = t.is_word();
    if (i > 0 && word && (text[i - 1].is_word() || text[i - 1].is(","))) out += ' ';
    if (word && !is_global(t.text) && !texts_.macros().find(t.text) && (i == 0 || !text[i - 1].is("::"))) {
      const auto found = scopes_.find(t.text);
      if (found == scopes_.end()) return {};
      // The name is found in the kernel's namespace, or in one around it.
      std::string_view scope = *found->second.begin();
      for (const std::string_view other : found->second)
        if (lies_in(kernel_.scope, other)) scope = other;
      if (!scope.empty()) out += std::string(scope) + "::";
    }
    out += t.text;
  }
  return out;
}

std::vector<Evidence> SourceValues::instantiations() const {
  std::vector<Evidence> out;
  for (const SourceText& text : texts_.all()) {
    const TokenView tokens(text.tokens);
    for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
      if (!tokens[i].is(kernel_.name) || !tokens[i + 1].is("<") || tokens[i + 2].is("<")) continue;
      Evidence found{text.place_of(tokens[i]), {}};
      const std::size_t end = tokens.after_angles(i + 1, tokens.size());
      for (const TokenRange& piece : tokens.pieces(i + 2, std::max(end, i + 3) - 1)) {
        const auto begin = text.tokens.begin();
        if (is_local(text, i, piece)) {
          found.values.emplace_back();
          continue;
        }
        found.values.push_back(qualified({std::next(begin, static_cast<std::ptrdiff_t>(piece.begin)),
                                          std::next(begin, static_cast<std::ptrdiff_t>(piece.end))}));
      }
      if (found.values.size() <= kernel_.parameters.size() && !found.values.empty())
        out.push_back(std::move(found));
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Evidence& a, const Evidence& b) {
    const auto known = [](const Evidence& e) {
      return std::count_if(e.values.begin(), e.values.end(), [](const std::string& v) { return !v.empty(); });
    };
    return known(a) > known(b);
  });
  return out;
}

}  // namespace kiln::cli
