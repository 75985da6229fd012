#include "tools/kiln/import/values.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/text.hpp"

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

/// Words before a name that do not declare it.
constexpr std::array<std::string_view, 16> kBeforeUses = {
    "return",   "case",     "else",   "goto",    "throw",     "new",     "delete",    "co_return",
    "co_yield", "operator", "public", "private", "protected", "virtual", "namespace", "sizeof"};
constexpr std::array<std::string_view, 9> kAfterNames = {"=", ";", "{", ",", ">", "[", "(", ")", ":"};

template <std::size_t N>
bool one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// True when the word at i looks like the name in a declaration. A reader without a compiler takes more for
/// declarations than there are.
bool declares(const TokenView& tokens, std::size_t i) {
  const Token& after = tokens[i + 1];
  if (i == 0 || !tokens[i].is_word()) return false;
  std::size_t before = i - 1;
  while (before > 0 && (tokens[before].is("&") || tokens[before].is("*"))) --before;
  const bool reference = before + 1 != i;
  const Token& type = tokens[before];
  if (type.is("[") || type.is(",")) {  // auto [a, b]
    std::size_t open = before;
    while (open > 0 && i - open < 64 && (tokens[open].is_word() || tokens[open].is(","))) --open;
    return tokens[open].is("[") && open > 0 && (tokens[open - 1].is("auto") || tokens[open - 1].is("&"));
  }
  if (type.is(">")) return (after.is("=") && !tokens[i + 2].is("=")) || after.is("{") || after.is(";");
  if (!type.is_word() || one_of(type.text, kBeforeUses) || (reference && !type.is("auto"))) return false;
  const bool key = type.is("struct") || type.is("class") || type.is("union") || type.is("enum");
  if (key && after.is(";")) return false;  // it only announces the type
  if (type.is("const") && (after.is(")") || after.is(","))) return false;
  return one_of(after.text, kAfterNames);
}

}  // namespace

SourceValues::SourceValues(const SourceTexts& texts, const KernelDeclaration& kernel)
    : texts_(texts), kernel_(kernel) {
  for (const SourceText& text : texts.all()) {
    const TokenView tokens(text.tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (declares(tokens, i) && text.is_seen(i) != Conditions::Truth::no) ++declared_[tokens[i].text];
    for (const Declaration& d : text.declarations) {
      if (d.parent != source::kNoDeclaration) {
        members_.insert(d.names.begin(), d.names.end());
        continue;
      }
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
  // An enumerator with letters beyond ASCII is left out: a manifest has no name for it.
  for (const TokenRange& piece : tokens.pieces(at + 1, std::max(close, at + 2) - 1))
    if (base::is_identifier(tokens[piece.begin].text)) added.values.emplace_back(tokens[piece.begin].text);
}

const EnumDeclaration* SourceValues::enumeration(const std::string& type) const {
  const auto found = enums_.find(type.substr(type.rfind(':') + 1));
  return found == enums_.end() ? nullptr : &found->second;
}

std::string SourceValues::qualified(const Tokens& text, std::string_view from) const {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Token& t = text[i];
    const bool word = t.is_word();
    if (i > 0 && word && (text[i - 1].is_word() || text[i - 1].is(","))) out += ' ';
    if (word && !is_global(t.text) && !texts_.macros().find(t.text) && (i == 0 || !text[i - 1].is("::"))) {
      const auto found = scopes_.find(t.text);
      if (found == scopes_.end()) return {};
      // The name is found in the innermost namespace around the place.
      const std::string_view* scope = nullptr;
      for (const std::string_view& other : found->second)
        if (lies_in(from, other) && (!scope || other.size() > scope->size())) scope = &other;
      if (!scope) scope = &*found->second.begin();
      if (!scope->empty()) out += std::string(*scope) + "::";
    }
    out += t.text;
  }
  return out;
}

/// Looks the kernel's name up from the namespace around the place, as C++ does.
SourceValues::Use SourceValues::use_at(const SourceText& text, std::size_t at,
                                       const Declaration* around) const {
  const TokenView tokens(text.tokens);
  if (at > 0 && (tokens[at - 1].is(".") || (tokens[at - 1].is(">") && at > 1 && tokens[at - 2].is("-"))))
    return Use::other;
  std::string path;  // "a::b", as it stands before the name
  std::size_t first = at;
  while (first > 1 && tokens[first - 1].is("::") && tokens[first - 2].is_word()) {
    path = std::string(tokens[first - 2].text) + (path.empty() ? "" : "::" + path);
    first -= 2;
  }
  const auto known = scopes_.find(kernel_.name);
  if (known == scopes_.end() || members_.contains(kernel_.name)) return Use::maybe;
  const bool absolute = first > 0 && tokens[first - 1].is("::");
  for (std::string outer = around && !absolute ? around->scope : std::string();;) {
    const std::string scope = outer.empty() || path.empty() ? outer + path : outer + "::" + path;
    if (known->second.contains(scope)) return scope == kernel_.scope ? Use::kernel : Use::other;
    if (outer.empty()) break;
    outer.resize(outer.rfind("::") == outer.npos ? 0 : outer.rfind("::"));
  }
  return Use::maybe;
}

/// Why the names of a value may mean something else than outside of the declaration around it.
std::string SourceValues::doubt_of(const Tokens& value, const Declaration* around) const {
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string_view word = value[i].text;
    if (!value[i].is_word() || is_global(word) || (i > 0 && value[i - 1].is("::"))) continue;
    const auto* macro = texts_.macros().definitions(word);
    const auto declared = declared_.find(word);
    const std::size_t times =
        (macro ? macro->size() : 0) + (declared == declared_.end() ? 0 : declared->second);
    if (times > 1) return "the sources declare " + std::string(word) + " more than once";
    if (macro && !macro->front().replacement.empty() && macro->front().replacement[0].is_word())
      if (const auto* inner = texts_.macros().definitions(macro->front().replacement[0].text);
          inner && inner->size() > 1)
        return "a macro in " + std::string(word) + " is defined more than once";
    if (!around || around->qualified || around->type)
      return std::string(word) + " may be a member of the class around it";
  }
  return {};
}

std::vector<Evidence> SourceValues::instantiations() const {
  std::vector<Evidence> out;
  for (const SourceText& text : texts_.all()) {
    const TokenView tokens(text.tokens);
    std::size_t next = 0;  // the first declaration that may stand around a place
    for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
      if (!tokens[i].is(kernel_.name) || !tokens[i + 1].is("<") || tokens[i + 2].is("<")) continue;
      while (next < text.declarations.size() && (text.declarations[next].tokens.end <= i ||
                                                 text.declarations[next].parent != source::kNoDeclaration))
        ++next;
      const Declaration* around = next < text.declarations.size() && text.declarations[next].tokens.begin <= i
                                      ? &text.declarations[next]
                                      : nullptr;
      const Use use = use_at(text, i, around);
      const Conditions::Truth seen = text.is_seen(i);
      if (use == Use::other || seen == Conditions::Truth::no) continue;
      Evidence found{text.place_of(tokens[i]), {}, {}};
      const std::size_t end = tokens.after_angles(i + 1, tokens.size());
      if (end == i + 1) continue;
      for (const TokenRange& piece : tokens.pieces(i + 2, end - 1)) {
        const auto begin = text.tokens.begin();
        const Tokens value(std::next(begin, static_cast<std::ptrdiff_t>(piece.begin)),
                           std::next(begin, static_cast<std::ptrdiff_t>(piece.end)));
        const bool local = is_local(text, i, piece);
        found.values.push_back(local ? std::string() : qualified(value, around ? around->scope : ""));
        std::string& doubt = found.doubts.emplace_back(doubt_of(value, around));
        if (use == Use::maybe) doubt = "another function may have the kernel's name";
        if (seen == Conditions::Truth::maybe) doubt = "an #if around the place may be false";
      }
      if (found.values.size() <= kernel_.parameters.size() && !found.values.empty())
        out.push_back(std::move(found));
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Evidence& a, const Evidence& b) {
    const auto known = [](const Evidence& e) {
      std::size_t certain = 0;
      for (std::size_t i = 0; i < e.values.size(); ++i)
        certain += !e.values[i].empty() && e.doubts[i].empty();
      return certain;
    };
    return known(a) > known(b);
  });
  return out;
}

}  // namespace kiln::cli
