#include "overlay/head.hpp"

#include <algorithm>
#include <array>

namespace kiln::source {
namespace {

template <std::size_t N>
bool one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
constexpr std::array<std::string_view, 18> kWithParentheses = {
    "__launch_bounds__", "__attribute__",    "__declspec",     "__align__", "alignas",         "decltype",
    "noexcept",          "explicit",         "requires",       "asm",       "throw",           "sizeof",
    "__maxnreg__",       "__cluster_dims__", "__block_size__", "alignof",   "__forceinline__", "catch"};
constexpr std::array<std::string_view, 4> kClassKeys = {"struct", "class", "union", "enum"};

/// Words that may stand after the parameters of a function.
constexpr std::array<std::string_view, 14> kAfterParameters = {
    "const", "volatile", "noexcept", "override", "final", "mutable",       "throw",
    "try",   "catch",    "asm",      "__asm__",  "__asm", "__attribute__", "__restrict__"};

/// Symbols that may stand after the name of a variable.
constexpr std::array<std::string_view, 6> kAfterName = {"=", "{", "(", "[", ",", ";"};

/// True for a word that cannot stand after the parameters of a function, so the '(' before it is no list of
/// parameters: ALIGNED(16) float a.
bool is_plain(std::string_view word) { return !is_macro_like(word) && !one_of(word, kAfterParameters); }

}  // namespace

bool takes_parentheses(std::string_view word) { return one_of(word, kWithParentheses); }
bool is_macro_like(std::string_view word) {
  return std::none_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; }) &&
         word.size() > 1;
}
std::string_view attribute_space(std::string_view word) {
  if (word == "global" || word == "__global__") return "__global__";
  if (word == "device" || word == "__device__" || word == "constant" || word == "managed")
    return "__device__";
  return {};
}
bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The name in a declarator of its own parentheses that open at i: (*name)(...), (A::*name)(...),
/// (&name)[...], (name)(...). kNoDeclaration when they are something else.
std::size_t HeadReader::inner_name(std::size_t i) const {
  std::size_t at = i + 1;
  while (tokens_[at].is_word() && tokens_[at + 1].is("::")) at += 2;
  if (is_macro_like(tokens_[at].text) && tokens_[at + 1].is("*")) ++at;  // (CALLBACK *name)(...)
  const bool alone = tokens_[at].is_word() && tokens_[at + 1].is(")");
  if (!alone && !tokens_[at].is("*") && !tokens_[at].is("&")) return kNoDeclaration;
  while (tokens_[at].is("*") || tokens_[at].is("&") || one_of(tokens_[at].text, kAfterParameters)) ++at;
  const Token& after = tokens_[tokens_.after_group(i, tokens_.size())];
  return tokens_[at].is_word() && (after.is("(") || after.is("[")) ? at : kNoDeclaration;
}
/// True when the parentheses at `k` of a head are an attribute's: a declaration follows them.
bool HeadReader::is_attribute(const Head& head, std::size_t k) const {
  for (++k; k < head.tokens.size(); ++k) {
    const Token& t = tokens_[head.tokens[k]];
    if (t.is("requires") || !(t.is_word() || t.is("["))) return false;
    if (takes_parentheses(t.text)) return false;  // void f(int) __launch_bounds__(64)
    if (t.is_word() && is_plain(t.text)) return true;
  }
  return false;
}

/// The words that name functions in a head: each stands before a '('.
std::vector<std::string_view> HeadReader::function_names(const Head& head) const {
  Words out;
  bool attribute = false;
  std::size_t list = 0;  // the place after the parameters
  for (std::size_t k = 0; k < head.tokens.size(); ++k) {
    const std::size_t at = head.tokens[k];
    // f<int>(...): the name stands before the template arguments.
    std::size_t before = k == 0 ? kNoDeclaration : k - 1;
    if (tokens_[at].is("<")) k = after_angles(head, k);
    if (k >= head.tokens.size()) break;
    const Token& t = tokens_[head.tokens[k]];
    if (t.is("operator")) return {"operator"};
    if (t.is("=") || t.is(":")) break;
    if (t.is(",") && list == k) return {};  // const int n(4), m = 8;
    if (!t.is("(") || before == kNoDeclaration) continue;
    const Token& name = tokens_[head.tokens[before]];
    if (const std::size_t inner = inner_name(head.tokens[k]); inner != kNoDeclaration && out.empty()) {
      // In MACRO(name)(...) the macro may give another name.
      if (inner == head.tokens[k] + 1) return {name.text, tokens_[inner].text};
      return tokens_[inner + 1].is("(") ? Words{tokens_[inner].text} : Words{};
    }
    if (!name.is_word() || takes_parentheses(name.text)) continue;
    if (before > 0 && tokens_[head.tokens[before - 1]].is("~")) return {"~"};
    const bool array = before > 0 && tokens_[head.tokens[before - 1]].is("[") &&
                       !tokens_[head.tokens[before - 1] + 1].is("[");
    attribute = array || is_attribute(head, k);
    if (!attribute) out.push_back(name.text);
    list = k + 1;
  }
  return attribute ? Words{} : out;
}
/// The place in `head.tokens` after the template arguments that open at k; k when they do not end there.
std::size_t HeadReader::after_angles(const Head& head, std::size_t k) const {
  const std::size_t from = head.tokens[k];
  if (k == 0 || !tokens_[head.tokens[k - 1]].is_word() || tokens_.is_shift(from)) return k;
  const std::size_t end = tokens_.after_angles(from, tokens_.size());
  while (end > from && k < head.tokens.size() && head.tokens[k] < end) ++k;
  return k;
}
/// The class key of a head; null when it has none outside of angle brackets.
const std::size_t* HeadReader::class_key(const Head& head) const {
  for (std::size_t k = 0; k < head.tokens.size(); ++k) {
    if (tokens_[head.tokens[k]].is("<")) k = after_angles(head, k);
    if (k >= head.tokens.size()) break;
    const std::size_t& at = head.tokens[k];
    const Token& t = tokens_[at];
    if (t.is_word() && one_of(t.text, kClassKeys)) return &at;
    if (t.is("=") || (t.is("(") && !(at > 0 && takes_parentheses(tokens_[at - 1].text)))) return nullptr;
  }
  return nullptr;
}
bool HeadReader::is_type(const Head& head) const {
  return head.body != kNoDeclaration && class_key(head) && !is_function(head);
}
bool HeadReader::is_function(const Head& head) const {
  const Words names = function_names(head);
  if (names.empty()) return false;
  if (tokens_[head.tokens[0]].is("typedef") || tokens_[head.tokens[0]].is("using")) return false;
  if (!class_key(head)) return true;
  // struct NAME(...) is a function, struct MACRO(...) NAME { is not.
  for (auto at = head.tokens.rbegin(); at != head.tokens.rend(); ++at) {
    if (*at >= head.body) continue;  // struct A { } ALIGN(16);
    return tokens_[*at].is("(") || tokens_[*at].is("const") || tokens_[*at].is("noexcept");
  }
  return false;
}

/// True for a deduction guide: Name(int) -> Name<double>. A function with such an arrow begins with auto.
bool HeadReader::is_guide(const Head& head) const {
  if (head.body != kNoDeclaration) return false;
  bool arrow = false;
  for (std::size_t k = 0; k < head.tokens.size(); ++k) {
    if (tokens_[head.tokens[k]].is("auto")) return false;
    arrow = arrow || (k + 2 < head.tokens.size() && tokens_[head.tokens[k]].is("(") &&
                      tokens_[head.tokens[k + 1]].is("-") && tokens_[head.tokens[k + 2]].is(">"));
  }
  return arrow;
}

void HeadReader::describe(Declaration& out, const Head& head, std::size_t end) const {
  if (head.tokens.empty()) return;
  const Token& first = tokens_[head.tokens[0]];
  if (first.is("static_assert") || first.is("_Static_assert")) {
    out.kind = DeclarationKind::check;
  } else if (first.is("namespace") || (first.is("using") && tokens_[head.tokens[0] + 1].is("namespace"))) {
    out.kind = DeclarationKind::fixed;
    return;
  }
  for (const std::size_t at : head.tokens) {
    const Token& t = tokens_[at];
    if (t.is_word()) out.specifiers.push_back(t.text);
    if (t.is("decltype") && tokens_[at + 2].is("auto")) out.specifiers.push_back("auto");
    const bool arrow = t.is("-") && tokens_[at + 1].is(">") && !tokens_[at - 1].is("operator");
    if (arrow) std::erase(out.specifiers, "auto");  // auto f() -> int
    if (!t.is("__attribute__")) continue;
    for (const std::string_view word : tokens_.words(at + 1, tokens_.after_group(at + 1, tokens_.size())))
      if (const auto space = attribute_space(word); !space.empty()) out.specifiers.push_back(space);
  }
  if (out.kind == DeclarationKind::check) return;
  if (is_function(head)) {
    out.guide = is_guide(head);
    out.kind = out.guide ? DeclarationKind::named : DeclarationKind::function;
    out.names = function_names(head);
    if (out.kind == DeclarationKind::named) return;
    for (std::size_t k = 1; k < head.tokens.size() && !tokens_[head.tokens[k]].is("("); ++k)
      if (tokens_[head.tokens[k]].is(out.names.back())) out.qualified = tokens_[head.tokens[k - 1]].is("::");
  } else {
    out.kind = DeclarationKind::named;
    out.names = class_key(head) && head.body != kNoDeclaration ? type_names(head, end) : variable_names(head);
    if (out.names.empty()) out.kind = DeclarationKind::fixed;
  }
}
/// Finds the template arguments after the name of a specialisation.
void HeadReader::specialise(Declaration& out, const Head& head, const Words& parameters) const {
  if (out.kind != DeclarationKind::named) return;
  for (std::size_t k = 1; k < head.tokens.size(); ++k) {
    const Token& before = tokens_[head.tokens[k - 1]];
    if (before.is("=") || before.is(":")) return;
    if (!tokens_[head.tokens[k]].is("<") || !contains(out.names, before.text)) continue;
    out.specialisation = true;
    const std::size_t end = tokens_.after_angles(head.tokens[k], tokens_.size());
    for (const std::string_view word : tokens_.words(head.tokens[k], end))
      if (!contains(parameters, word)) out.arguments.push_back(word);
    return;
  }
}
std::vector<std::string_view> HeadReader::type_names(const Head& head, std::size_t end) const {
  const std::size_t* key = class_key(head);
  Words out;
  if (tokens_[*key].is("enum")) out = tokens_.words(head.body, head.body_end);
  std::string_view name;
  for (const std::size_t at : head.tokens) {
    if (at <= *key || at > head.body) continue;
    const Token& t = tokens_[at];
    if (t.is("<") || t.is(":")) break;
    if (t.is_word() && !t.is("final") && !takes_parentheses(t.text)) name = t.text;
  }
  if (!name.empty()) out.push_back(name);
  for (std::size_t at = head.body_end + 1; at < end; ++at)
    if (tokens_[at].is_word()) out.push_back(tokens_[at].text);
  return out;
}
std::vector<std::string_view> HeadReader::variable_names(const Head& head) const {
  Words out;
  std::string_view name;
  bool value = false, commas = false;
  const auto take = [&] {
    if (!name.empty() && !value) out.push_back(name);
    name = {};
  };
  for (std::size_t k = 0; k < head.tokens.size(); ++k) {
    if (!value && tokens_[head.tokens[k]].is("<")) k = after_angles(head, k);
    if (k >= head.tokens.size()) break;
    const std::size_t at = head.tokens[k];
    const Token& t = tokens_[at];
    // The '<' of a value may be an operator or not: after a comma, each word before one of these may be a name.
    if (value && commas && t.is_word() && !tokens_[at - 1].is("=") &&
        one_of(tokens_[at + 1].text, kAfterName))
      out.push_back(t.text);
    if (value && commas && t.is("(") && inner_name(at) != kNoDeclaration)
      out.push_back(tokens_[inner_name(at)].text);
    if (t.is_word() && !takes_parentheses(t.text)) {
      if (!value) name = t.text;
    } else if (t.is("(") && !value && is_attribute(head, k)) {
      name = {};
    } else if (const std::size_t inner = t.is("(") && !value ? inner_name(at) : kNoDeclaration;
               inner != kNoDeclaration) {
      name = tokens_[inner].text;
      take();
      value = true;
    } else if (t.is("=") || t.is("[") || t.is("(") || t.is("{") || t.is(":")) {
      take();  // enum name : int;
      value = true;
    } else if (t.is(",")) {
      take();
      commas = value;
    }
  }
  take();
  return out;
}

}  // namespace kiln::source
