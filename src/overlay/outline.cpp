#include "overlay/outline.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace kiln::source {
namespace {

using Words = std::vector<std::string_view>;

/// Deeper scopes count as one fixed declaration.
constexpr int kMostScopes = 64;

template <std::size_t N>
bool one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
constexpr std::array<std::string_view, 17> kWithParentheses = {
    "__launch_bounds__", "__attribute__",    "__declspec",     "__align__", "alignas",        "decltype",
    "noexcept",          "explicit",         "requires",       "asm",       "throw",          "sizeof",
    "__maxnreg__",       "__cluster_dims__", "__block_size__", "alignof",   "__forceinline__"};
constexpr std::array<std::string_view, 4> kClassKeys = {"struct", "class", "union", "enum"};
constexpr std::array<std::string_view, 4> kAccess = {"public", "private", "protected", "signals"};
constexpr std::array<std::string_view, 4> kStaying = {"virtual", "override", "final", "friend"};

bool is_word(const Token& token) { return token.kind == Token::Kind::word; }

bool is_macro_like(std::string_view word) {
  return std::none_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; }) &&
         word.size() > 1;
}
bool opens_or_closes(std::string_view word) {
  const auto has = [&](std::string_view part) { return word.find(part) != std::string_view::npos; };
  return is_macro_like(word) && (has("BEGIN") || has("END") || has("OPEN") || has("CLOSE")) &&
         (has("NAMESPACE") || has("DECLS"));
}

Words words_of(const std::vector<Token>& tokens, std::size_t from, std::size_t to) {
  std::unordered_set<std::string_view> seen;
  Words out;
  for (std::size_t i = from; i < to; ++i) {
    if (tokens[i].kind == Token::Kind::directive) {
      for (const Token& inner : tokens_of(directive_text(tokens[i].text).rest))
        if (is_word(inner) && seen.insert(inner.text).second) out.push_back(inner.text);
    } else if (is_word(tokens[i]) && seen.insert(tokens[i].text).second) {
      out.push_back(tokens[i].text);
    }
  }
  return out;
}

/// Follows parentheses and braces through conditional text: every branch of an #if begins at the depth of
/// the #if.
class Nesting {
 public:
  void directive(std::string_view line) {
    const std::string_view name = directive_text(line).name;
    if (name == "if" || name == "ifdef" || name == "ifndef") {
      before_.push_back(depth_);
    } else if (name.starts_with("el") || name == "endif") {
      crosses_ = crosses_ || before_.empty();
      if (name != "endif") depth_ = before_.empty() ? 0 : before_.back();
      if (name == "endif" && !before_.empty()) before_.pop_back();
    }
  }
  void open() { ++depth_; }
  void close() { depth_ = std::max(0, depth_ - 1); }
  int depth() const { return depth_; }
  /// True when the text has a part of a conditional, but not all of it.
  bool crosses() const { return crosses_ || !before_.empty(); }

 private:
  int depth_ = 0;
  bool crosses_ = false;
  std::vector<int> before_;
};

class Outliner {
 public:
  Outliner(std::string_view text, const std::vector<Token>& tokens,
           const std::set<std::string_view>& brace_macros)
      : text_(text), tokens_(tokens), brace_macros_(brace_macros) {}

  std::vector<Declaration> run() {
    std::size_t at = 0;
    while (at < tokens_.size()) {
      scope(at, tokens_.size(), kNoDeclaration, 0);
      ++at;  // a '}' too many
    }
    return std::move(out_);
  }

 private:
  const Token& token(std::size_t i) const {
    static const Token kEnd{};
    return i < tokens_.size() ? tokens_[i] : kEnd;
  }
  std::size_t offset(std::size_t i) const {
    return i < tokens_.size() ? static_cast<std::size_t>(tokens_[i].text.data() - text_.data())
                              : text_.size();
  }

  /// Reads declarations up to `end`, or to the '}' that closes the scope.
  void scope(std::size_t& i, std::size_t end, std::size_t parent, int depth) {
    while (i < end && !token(i).is("}")) {
      if (token(i).kind == Token::Kind::directive || token(i).is(";")) {
        ++i;
      } else if (parent != kNoDeclaration && one_of(token(i).text, kAccess) && token(i + 1).is(":")) {
        i += 2;
      } else if (const std::size_t open = opening_brace(i, end); open != end && depth < kMostScopes) {
        const std::size_t outer = scope_.size();
        enter(i, open);
        i = open + 1;
        scope(i, end, parent, depth + 1);
        scope_.resize(outer);
        if (i < end) ++i;
      } else if (is_word(token(i)) &&
                 (brace_macros_.contains(token(i).text) || opens_or_closes(token(i).text))) {
        i = token(i + 1).is("(") ? after_group(i + 1, end) : i + 1;
      } else {
        declaration(i, end, parent, depth);
      }
    }
  }
  /// The '{' of a namespace or an extern "C" that begins at i; `end` when none does.
  std::size_t opening_brace(std::size_t i, std::size_t end) const {
    if (token(i).is("inline") && token(i + 1).is("namespace")) ++i;
    if (token(i).is("extern") && token(i + 1).kind == Token::Kind::literal && token(i + 2).is("{"))
      return i + 2;
    if (!token(i).is("namespace")) return end;
    while (i < end && !token(i).is("{") && !token(i).is(";") && !token(i).is("=")) ++i;
    return i < end && token(i).is("{") ? i : end;
  }
  /// Appends the names of the namespace whose words are those from i to `open`.
  void enter(std::size_t i, std::size_t open) {
    bool skipped = !token(i).is("namespace");  // inline, or extern "C"
    for (; i < open; ++i) {
      if (token(i).is("(") || token(i).is("[")) {
        i = after_group(i, open) - 1;
      } else if (token(i).is("inline")) {
        skipped = true;
      } else if (is_word(token(i)) && !token(i).is("namespace") && !one_of(token(i).text, kWithParentheses)) {
        // Only the last of several words is the name: the others are macros.
        const bool last = i + 1 == open || token(i + 1).is("::") || token(i + 1).is("[");
        if (last && !skipped) scope_ += (scope_.empty() ? "" : "::") + std::string(token(i).text);
        if (last) skipped = false;
      }
    }
  }
  /// The position after the group of brackets that opens at i.
  std::size_t after_group(std::size_t i, std::size_t end) const {
    Nesting nesting;
    for (; i < end; ++i) {
      const Token& t = tokens_[i];
      if (t.kind == Token::Kind::directive) nesting.directive(t.text);
      if (t.is("(") || t.is("[") || t.is("{")) nesting.open();
      if (t.is(")") || t.is("]") || t.is("}")) {
        nesting.close();
        if (nesting.depth() == 0) return i + 1;
      }
    }
    return end;
  }
  /// The position after the template arguments that open at i.
  std::size_t after_angles(std::size_t i, std::size_t end) const {
    int angles = 0;
    while (i < end) {
      const Token& t = tokens_[i];
      if (t.is("(") || t.is("[") || t.is("{")) {
        i = after_group(i, end);
        continue;
      }
      if (t.is(";") || t.is("}")) return i;
      if (t.is("<")) ++angles;
      if (t.is(">") && --angles == 0) return i + 1;
      ++i;
    }
    return end;
  }

  /// The part of a declaration outside of its brackets, up to its body.
  struct Head {
    std::vector<std::size_t> tokens;  ///< indices; of a group only its opening bracket
    std::size_t first = 0;            ///< of its template header
    std::size_t body = kNoDeclaration, body_end = 0;
    bool crosses = false;
  };

  void declaration(std::size_t& i, std::size_t end, std::size_t parent, int depth) {
    const std::size_t begin = i;
    std::size_t from = i;
    while (token(from).is("template") && token(from + 1).is("<")) from = after_angles(from + 1, end);
    const bool instantiation =
        token(from).is("template") || (token(from).is("extern") && token(from + 1).is("template"));
    const std::size_t called = from == begin ? call_end(begin, end) : 0;
    Head head;
    head.first = begin;
    if (called != 0) {
      i = called;
    } else {
      i = read(from, end, head);
      for (std::size_t t = begin; t < from; ++t)
        head.crosses = head.crosses || tokens_[t].kind == Token::Kind::directive;
    }
    i = std::max(i, begin + 1);
    Declaration out;
    out.begin = offset(begin);
    out.end = offset(i - 1) + token(i - 1).text.size();
    out.parent = parent;
    if (parent == kNoDeclaration) out.scope = scope_;
    if (called != 0) {
      out.kind = DeclarationKind::call;
    } else if (head.crosses) {
      out.kind = DeclarationKind::fixed;
    } else if (instantiation) {
      out.kind = DeclarationKind::instantiation;
    } else {
      describe(out, head, i);
    }
    if (parent != kNoDeclaration) return member(out, begin, i, head, depth);
    const std::size_t own = out_.size();
    out_.push_back(std::move(out));
    if (is_type(head) && !head.crosses) {
      std::size_t inside = head.body + 1;
      scope(inside, head.body_end, own, depth + 1);
    }
    out_[own].words = own_words(own, begin, i);
  }
  /// Keeps a member function. Everything else is part of its class.
  void member(Declaration& out, std::size_t begin, std::size_t i, const Head& head, int depth) {
    if (out.kind != DeclarationKind::function) {
      if (!is_type(head) || head.crosses || depth >= kMostScopes) return;
      std::size_t inside = head.body + 1;
      return scope(inside, head.body_end, out.parent, depth + 1);
    }
    const Declaration& parent = out_[out.parent];
    out.stays_in_class = has(out.names, "operator") || has(out.specifiers, "friend");
    for (const std::string_view word : out.specifiers)
      out.stays_in_class = out.stays_in_class || one_of(word, kStaying);
    for (const std::string_view name : out.names)
      out.stays_in_class = out.stays_in_class || has(parent.names, name);
    if (out.stays_in_class || token(begin).is("~")) return;
    out.words = words_of(tokens_, begin, i);
    out_.push_back(std::move(out));
    members_.push_back({out_.size() - 1, begin, i});
  }
  static bool has(const Words& words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  }
  /// The words of a declaration without the words of its member functions.
  Words own_words(std::size_t own, std::size_t begin, std::size_t end) {
    Words out;
    std::unordered_set<std::string_view> seen;
    const auto add = [&](std::size_t from, std::size_t to) {
      for (const std::string_view word : words_of(tokens_, from, to))
        if (seen.insert(word).second) out.push_back(word);
    };
    std::size_t from = begin;
    for (const Member& m : members_) {
      if (out_[m.declaration].parent != own || m.begin < from) continue;
      add(from, m.begin);
      from = m.end;
    }
    add(from, end);
    members_.clear();
    return out;
  }

  /// The end of a macro call that stands alone at i; 0 when there is none.
  std::size_t call_end(std::size_t i, std::size_t end) const {
    if (!is_word(token(i)) || !token(i + 1).is("(")) return 0;
    if (one_of(token(i).text, kWithParentheses) || token(i).is("static_assert")) return 0;
    const std::size_t after = after_group(i + 1, end);
    if (token(after).is(";")) return after + 1;
    const bool goes_on = after < end && !token(after).is("}") && token(after).kind != Token::Kind::directive;
    if (!goes_on) return after;
    // A macro that another declaration follows: NAME(...) on a line of its own.
    const std::string_view between = text_.substr(offset(after - 1), offset(after) - offset(after - 1));
    const bool new_line = between.find('\n') != std::string_view::npos;
    return new_line && is_macro_like(token(i).text) && !token(after).is("{") ? after : 0;
  }

  /// Reads a declaration from `i`, and returns the position after it.
  std::size_t read(std::size_t i, std::size_t end, Head& head) {
    Nesting nesting;
    bool ends_with_body = false;
    for (; i < end; ++i) {
      const Token& t = tokens_[i];
      if (t.kind == Token::Kind::directive) {
        nesting.directive(t.text);
        continue;
      }
      const bool outside = nesting.depth() == 0;
      if (outside && t.is(";")) {
        ++i;
        break;
      }
      if (outside && (t.is("}") || t.is(")") || t.is("]"))) {
        head.crosses = true;
        if (!t.is("}")) ++i;
        break;
      }
      if (outside) {
        if (t.is("{")) {
          ends_with_body = is_function(head);
          if (head.body == kNoDeclaration || ends_with_body) head.body = i;
        }
        if (head.body == kNoDeclaration || !t.is("{")) head.tokens.push_back(i);
      }
      if (t.is("(") || t.is("[") || t.is("{")) nesting.open();
      if (t.is(")") || t.is("]") || t.is("}")) nesting.close();
      if (nesting.depth() != 0 || !t.is("}")) continue;
      head.body_end = i;
      // A constructor's initialisers may have braces, too.
      if (ends_with_body && !token(i + 1).is(",") && !token(i + 1).is("{") && !token(i + 1).is("catch")) {
        ++i;
        break;
      }
    }
    head.crosses = head.crosses || nesting.crosses() || nesting.depth() != 0;
    return i;
  }

  /// The words that name functions in a head: each stands before a '('.
  Words function_names(const Head& head) const {
    Words out;
    int angles = 0;
    for (std::size_t k = 0; k < head.tokens.size(); ++k) {
      const Token& t = tokens_[head.tokens[k]];
      if (t.is("operator")) return {"operator"};
      if (t.is("=") && angles == 0) break;
      if (t.is(":") && !out.empty()) break;
      const bool after_word = k > 0 && is_word(tokens_[head.tokens[k - 1]]);
      if (t.is("<") && after_word) ++angles;
      if (t.is(">") && angles > 0 && !(k > 0 && tokens_[head.tokens[k - 1]].is("-"))) --angles;
      if (!t.is("(") || angles != 0 || k == 0) continue;
      std::size_t before = k - 1;
      if (tokens_[head.tokens[before]].is(">")) before = before_angles(head, before);
      if (before == kNoDeclaration) continue;
      const Token& name = tokens_[head.tokens[before]];
      if (is_word(name) && !one_of(name.text, kWithParentheses)) out.push_back(name.text);
    }
    return out;
  }
  /// The place in `head.tokens` before the '<' that belongs to the '>' at k.
  std::size_t before_angles(const Head& head, std::size_t k) const {
    int angles = 0;
    for (; k != kNoDeclaration; --k) {
      const Token& t = tokens_[head.tokens[k]];
      if (t.is(">")) ++angles;
      if (t.is("<") && --angles == 0) return k - 1;
    }
    return kNoDeclaration;
  }
  /// The class key of a head; null when it has none outside of angle brackets.
  const std::size_t* class_key(const Head& head) const {
    int angles = 0;
    for (const std::size_t& at : head.tokens) {
      const Token& t = tokens_[at];
      if (t.is("<")) ++angles;
      if (t.is(">") && angles > 0) --angles;
      if (angles == 0 && is_word(t) && one_of(t.text, kClassKeys)) return &at;
      if (t.is("=") || (t.is("(") && !(at > 0 && one_of(tokens_[at - 1].text, kWithParentheses))))
        return nullptr;
    }
    return nullptr;
  }
  bool is_type(const Head& head) const {
    return head.body != kNoDeclaration && class_key(head) && !is_function(head);
  }
  bool is_function(const Head& head) const {
    const Words names = function_names(head);
    if (names.empty() || (!head.tokens.empty() && token(head.tokens[0]).is("typedef"))) return false;
    if (!class_key(head)) return true;
    // struct NAME(...) is a function, struct MACRO(...) NAME { is not.
    for (auto at = head.tokens.rbegin(); at != head.tokens.rend(); ++at) {
      if (tokens_[*at].is("{")) continue;
      return tokens_[*at].is("(") || tokens_[*at].is("const") || tokens_[*at].is("noexcept");
    }
    return false;
  }

  void describe(Declaration& out, const Head& head, std::size_t end) const {
    if (head.tokens.empty()) return;
    const Token& first = tokens_[head.tokens[0]];
    if (first.is("static_assert") || first.is("_Static_assert")) {
      out.kind = DeclarationKind::check;
    } else if (first.is("namespace") || (first.is("using") && token(head.tokens[0] + 1).is("namespace"))) {
      out.kind = DeclarationKind::fixed;
    } else if (is_function(head)) {
      out.kind = DeclarationKind::function;
      if (head.body != kNoDeclaration) {
        out.body = offset(head.body);
        out.head_words = words_of(tokens_, head.first, head.body);
      }
      out.names = function_names(head);
      for (std::size_t k = 1; k < head.tokens.size() && !tokens_[head.tokens[k]].is("("); ++k)
        out.qualified = tokens_[head.tokens[k - 1]].is("::") && tokens_[head.tokens[k]].is(out.names.back());
      for (const std::size_t at : head.tokens)
        if (is_word(tokens_[at])) out.specifiers.push_back(tokens_[at].text);
    } else {
      out.kind = DeclarationKind::named;
      out.names =
          class_key(head) && head.body != kNoDeclaration ? type_names(head, end) : variable_names(head);
      if (out.names.empty()) out.kind = DeclarationKind::fixed;
    }
  }
  Words type_names(const Head& head, std::size_t end) const {
    const std::size_t* key = class_key(head);
    Words out;
    if (tokens_[*key].is("enum")) out = words_of(tokens_, head.body, head.body_end);
    std::string_view name;
    for (const std::size_t at : head.tokens) {
      if (at <= *key || at > head.body) continue;
      const Token& t = tokens_[at];
      if (t.is("<") || t.is(":")) break;
      if (is_word(t) && !t.is("final") && !one_of(t.text, kWithParentheses)) name = t.text;
    }
    if (!name.empty()) out.push_back(name);
    for (std::size_t at = head.body_end + 1; at < end; ++at)
      if (is_word(tokens_[at])) out.push_back(tokens_[at].text);
    return out;
  }
  Words variable_names(const Head& head) const {
    Words out;
    std::string_view name;
    int angles = 0;
    bool value = false;
    const auto take = [&] {
      if (!name.empty() && !value) out.push_back(name);
      name = {};
    };
    for (const std::size_t at : head.tokens) {
      const Token& t = tokens_[at];
      if (t.is("<")) ++angles;
      if (t.is(">") && angles > 0) --angles;
      if (angles > 0) continue;
      if (is_word(t) && !one_of(t.text, kWithParentheses)) {
        if (!value) name = t.text;
      } else if (t.is("(") && token(at + 1).is("*") && is_word(token(at + 2))) {
        out.push_back(token(at + 2).text);  // typedef void (*NAME)(int)
      } else if (t.is("=") || t.is("[") || t.is("(")) {
        take();
        value = true;
      } else if (t.is(",")) {
        take();
        value = false;
      }
    }
    take();
    return out;
  }

  struct Member {
    std::size_t declaration, begin, end;
  };
  const std::string_view text_;
  const std::vector<Token>& tokens_;
  const std::set<std::string_view>& brace_macros_;
  std::string scope_;  ///< the namespaces around the place that is read
  std::vector<Declaration> out_;
  std::vector<Member> members_;  ///< of the class that is being read
};

}  // namespace

std::vector<MacroDefinition> macros_of(const std::vector<Token>& tokens) {
  std::vector<MacroDefinition> out;
  for (const Token& token : tokens) {
    if (token.kind != Token::Kind::directive) continue;
    const DirectiveText directive = directive_text(token.text);
    if (directive.name != "define") continue;
    const std::vector<Token> inner = tokens_of(directive.rest);
    if (inner.empty() || !is_word(inner[0])) continue;
    MacroDefinition macro{inner[0].text, words_of(inner, 1, inner.size()), false};
    int depth = 0;
    for (const Token& t : inner) {
      if (t.is("{")) ++depth;
      if (t.is("}")) --depth;
    }
    macro.braces = depth != 0;
    out.push_back(std::move(macro));
  }
  return out;
}

std::vector<Declaration> outline_of(std::string_view text, const std::vector<Token>& tokens,
                                    const std::set<std::string_view>& brace_macros) {
  return Outliner(text, tokens, brace_macros).run();
}

}  // namespace kiln::source
