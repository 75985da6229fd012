#include "overlay/outline.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "overlay/balance.hpp"
#include "overlay/expansion.hpp"
#include "overlay/head.hpp"
#include "overlay/macros.hpp"

namespace kiln::source {
namespace {

using Words = std::vector<std::string_view>;

/// Deeper scopes count as one fixed declaration.
constexpr int kMostScopes = 64;
/// Tokens of a head outside of brackets, and groups of braces beside each other. A declaration with more is fixed.
constexpr std::size_t kMostHead = 4096;
constexpr int kMostBraces = 256;
const Words kAccess = {"public", "private", "protected", "signals"};

bool opens_or_closes(std::string_view word) {
  const auto has = [&](std::string_view part) { return word.find(part) != std::string_view::npos; };
  return is_macro_like(word) && (has("BEGIN") || has("END") || has("OPEN") || has("CLOSE")) &&
         (has("NAMESPACE") || has("DECLS"));
}

class Outliner {
 public:
  Outliner(std::string_view text, const std::vector<Token>& tokens, const Macros& macros)
      : text_(text),
        tokens_(tokens),
        heads_(tokens_),
        macros_(macros),
        unpaired_(first_unpaired(tokens, macros)) {}

  std::vector<Declaration> run() {
    std::size_t at = 0;
    while (at < tokens_.size()) {
      scope(at, tokens_.size(), kNoDeclaration, 0);
      ++at;  // a '}' too many
    }
    for (Declaration& d : out_) d.paired = d.tokens.end <= unpaired_;
    return std::move(out_);
  }

 private:
  std::size_t offset(std::size_t i) const {
    return i < tokens_.size() ? static_cast<std::size_t>(tokens_[i].text.data() - text_.data())
                              : text_.size();
  }

  /// Reads declarations up to `end`, or to the '}' that closes the scope.
  void scope(std::size_t& i, std::size_t end, std::size_t parent, int depth) {
    while (i < end && !tokens_[i].is("}")) {
      if (tokens_[i].kind == Token::Kind::directive || tokens_[i].is(";")) {
        ++i;
      } else if (parent != kNoDeclaration && contains(kAccess, tokens_[i].text) && tokens_[i + 1].is(":")) {
        i += 2;
      } else if (const std::size_t open = opening_brace(i, end); open != end && depth < kMostScopes) {
        const std::size_t outer = scope_.size();
        enter(i, open);
        i = open + 1;
        scope(i, end, parent, depth + 1);
        scope_.resize(outer);
        if (i < end) ++i;
      } else if (tokens_[i].is_word() &&
                 (macros_.scopes().contains(tokens_[i].text) || opens_or_closes(tokens_[i].text))) {
        i = tokens_[i + 1].is("(") ? tokens_.after_group(i + 1, end) : i + 1;
      } else {
        declaration(i, end, parent, depth);
      }
    }
  }
  /// The '{' of a namespace or an extern "C" that begins at i; `end` when none does.
  std::size_t opening_brace(std::size_t i, std::size_t end) const {
    if (tokens_[i].is("inline") && tokens_[i + 1].is("namespace")) ++i;
    if (tokens_[i].is("extern") && tokens_[i + 1].kind == Token::Kind::literal && tokens_[i + 2].is("{"))
      return i + 2;
    if (!tokens_[i].is("namespace")) return end;
    while (i < end && !tokens_[i].is("{") && !tokens_[i].is(";") && !tokens_[i].is("=")) ++i;
    return i < end && tokens_[i].is("{") ? i : end;
  }
  /// Appends the names of the namespace whose words are those from i to `open`.
  void enter(std::size_t i, std::size_t open) {
    bool skipped = !tokens_[i].is("namespace");  // inline, or extern "C"
    for (; i < open; ++i) {
      if (tokens_[i].is("(") || tokens_[i].is("[")) {
        i = tokens_.after_group(i, open) - 1;
      } else if (tokens_[i].is("inline")) {
        skipped = true;
      } else if (tokens_[i].is_word() && !tokens_[i].is("namespace") && !takes_parentheses(tokens_[i].text)) {
        // Only the last of several words is the name: the others are macros.
        const bool last = i + 1 == open || tokens_[i + 1].is("::") || tokens_[i + 1].is("[") ||
                          takes_parentheses(tokens_[i + 1].text);
        if (last && !skipped) scope_ += (scope_.empty() ? "" : "::") + std::string(tokens_[i].text);
        if (last) skipped = false;
      }
    }
  }
  static bool is_include(const Token& t) {
    return t.kind == Token::Kind::directive && directive_text(t.text).name.starts_with("include");
  }
  void declaration(std::size_t& i, std::size_t end, std::size_t parent, int depth) {
    const std::size_t begin = i;
    std::size_t from = i;
    bool specialises = false;
    while (tokens_[from].is("template") && tokens_[from + 1].is("<")) {
      specialises = specialises || tokens_[from + 2].is(">");
      const std::size_t after = tokens_.after_angles(from + 1, end);
      if (after == from + 1) unpaired_ = std::min(unpaired_, begin);
      from = after;
    }
    const bool instantiation =
        tokens_[from].is("template") || (tokens_[from].is("extern") && tokens_[from + 1].is("template"));
    const std::size_t called = from == begin ? call_end(begin, end) : 0;
    Head head;
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
    out.end = offset(i - 1) + tokens_[i - 1].text.size();
    out.tokens = {begin, i};
    for (std::size_t t = begin; t < i; ++t) out.includes = out.includes || is_include(tokens_[t]);
    out.parent = parent;
    if (parent == kNoDeclaration) out.scope = scope_;
    if (called != 0) {
      out.kind = DeclarationKind::call;
    } else if (head.crosses && i <= unpaired_) {
      out.kind = DeclarationKind::fixed;
    } else if (instantiation) {
      out.kind = DeclarationKind::instantiation;
    } else {
      heads_.describe(out, head, i);
      if (out.kind == DeclarationKind::function && head.body != kNoDeclaration) {
        out.body_begin = offset(head.body);
        out.head_words = tokens_.words(begin, head.body);
      }
      if (from != begin) heads_.specialise(out, head, tokens_.words(begin, from));
      if (out.kind == DeclarationKind::function) out.specialisation = specialises;
    }
    if (parent != kNoDeclaration) return member(out, begin, i, head, depth);
    const std::size_t own = out_.size();
    out.type = heads_.is_type(head) && !head.crosses;
    out_.push_back(std::move(out));
    if (out_.back().type) {
      std::size_t inside = head.body + 1;
      scope(inside, head.body_end, own, depth + 1);
    }
    out_[own].words = own_words(own, begin, i);
  }
  /// Keeps a member function with a body. Everything else is part of its class.
  void member(Declaration& out, std::size_t begin, std::size_t i, const Head& head, int depth) {
    if (out.kind == DeclarationKind::call) {
      // A host constructor looks like a call: NAME(int);
      const std::string_view name = tokens_[begin].text;
      if (contains(out_[out.parent].names, name) || contains(nested_, name))
        out_[out.parent].members.push_back({name, {}});
      return;
    }
    if (out.kind != DeclarationKind::function) {
      if (!heads_.is_type(head) || head.crosses || depth >= kMostScopes) return;
      std::size_t inside = head.body + 1;
      const std::size_t outer = nested_.size();
      const Words names = heads_.type_names(head, i);
      nested_.insert(nested_.end(), names.begin(), names.end());
      scope(inside, head.body_end, out.parent, depth + 1);
      nested_.resize(outer);
      return;
    }
    Declaration& parent = out_[out.parent];
    Marks marks;
    for (const std::string_view word : out.specifiers) {
      marks |= macros_.marks_of(word);
      const bool type = contains(parent.names, word) || contains(nested_, word);
      // It may say __device__.
      marks.device = marks.device || (is_macro_like(word) && !macros_.find(word) && !type);
    }
    const bool destroys = std::any_of(head.tokens.begin(), head.tokens.end(),
                                      [&](std::size_t at) { return tokens_[at].is("~"); });
    // float a ALIGNED(16) {1}; is a data member.
    const bool field = std::any_of(out.names.begin(), out.names.end(), [&](std::string_view name) {
      const bool constructs = contains(parent.names, name) || contains(nested_, name);
      return !constructs && (is_macro_like(name) || name.starts_with("__") || macros_.find(name));
    });
    // NVRTC refuses the word __host__. No data member has it.
    if (!out.defined() && contains(out.specifiers, "__host__") && !contains(out.specifiers, "__device__"))
      out.body_begin = offset(i - 1);
    if (!out.defined() && !field) parent.members.push_back({out.names.back(), marks});
    if (!out.defined() || destroys || field) return;
    out.stays_in_class = contains(out.names, "operator") || may_make_a_member(begin) || marks.dispatched ||
                         marks.is_friend || marks.specialises || out.specialisation;
    for (const std::string_view name : out.names)
      out.stays_in_class = out.stays_in_class || contains(parent.names, name) || contains(nested_, name);
    if (out.stays_in_class) take_initialisers(out, head);
    out.words = tokens_.words(begin, i);
    out_.push_back(std::move(out));
    members_.push_back({out_.size() - 1, begin, i});
  }
  /// True for a macro that may stand for another member: FIELD(float, x) bool ok() { ... }.
  bool may_make_a_member(std::size_t i) const {
    const bool call = tokens_[i + 1].is("(") && macros_.is_called(tokens_[i].text);
    return call || (macros_.find(tokens_[i].text) && macros_.completes(tokens_[i].text));
  }
  /// A constructor's body begins with the ':' of its initialisers.
  void take_initialisers(Declaration& out, const Head& head) const {
    bool parameters = false;
    for (const std::size_t at : head.tokens) {
      if (at >= head.body) return;
      if (parameters && tokens_[at].is(":")) {
        out.body_begin = offset(at);
        return;
      }
      parameters = parameters || tokens_[at].is("(");
    }
  }
  /// The words of a declaration without its member functions.
  Words own_words(std::size_t own, std::size_t begin, std::size_t end) {
    Words out;
    std::unordered_set<std::string_view> seen;
    const auto add = [&](std::size_t from, std::size_t to) {
      for (const std::string_view word : tokens_.words(from, to))
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
    if (!tokens_[i].is_word()) return 0;
    MacroEnd macro_end = macros_.end_of(tokens_[i].text);
    if (!tokens_[i + 1].is("(") || (macros_.find(tokens_[i].text) && !macros_.is_called(tokens_[i].text))) {
      if (macro_end != MacroEnd::closed) return 0;
      return tokens_[i + 1].is(";") ? i + 2 : i + 1;
    }
    if (takes_parentheses(tokens_[i].text) || tokens_[i].is("static_assert") ||
        tokens_[i].is("_Static_assert"))
      return 0;
    const std::size_t after = tokens_.after_group(i + 1, end);
    if (tokens_[after].is(";")) return after + 1;
    const bool goes_on =
        after < end && !tokens_[after].is("}") && tokens_[after].kind != Token::Kind::directive;
    if (!goes_on) return after;
    const bool function = tokens_[after].is("{") || tokens_[after].is(":");
    const bool known = macros_.find(tokens_[i].text) != nullptr;
    if (tokens_[i].is("_Pragma") || tokens_[i].is("__pragma")) return after;
    if (known && macro_end == MacroEnd::unclear)
      macro_end = end_of_call(macros_, text_.substr(offset(i), offset(after - 1) + 1 - offset(i)));
    if (macro_end == MacroEnd::closed) return function ? 0 : after;
    if (known && macro_end == MacroEnd::open) return 0;
    // A macro of the toolkit: __CUDA_ALIGN__(16) struct A { ... };
    if (!known && tokens_[i].text.starts_with("__")) return 0;
    // A macro that another declaration may follow: NAME(...) on a line of its own.
    const std::string_view between = text_.substr(offset(after - 1), offset(after) - offset(after - 1));
    const bool new_line = between.find('\n') != std::string_view::npos;
    return new_line && is_macro_like(tokens_[i].text) && !function ? after : 0;
  }

  /// Reads a declaration from `i`, and returns the position after it.
  std::size_t read(std::size_t i, std::size_t end, Head& head) {
    Nesting nesting;
    bool ends_with_body = false;
    int braces = 0;
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
        if (t.is("{") && ++braces > kMostBraces) head.crosses = true;
        if (t.is("{") && !head.crosses) {
          ends_with_body = heads_.is_function(head);
          if (head.body == kNoDeclaration || ends_with_body) head.body = i;
        }
        head.crosses = head.crosses || head.tokens.size() > kMostHead;
        if ((head.body == kNoDeclaration || !t.is("{")) && !head.crosses) head.tokens.push_back(i);
      }
      if (t.is("(") || t.is("[") || t.is("{")) nesting.open();
      if (t.is(")") || t.is("]") || t.is("}")) nesting.close();
      if (nesting.depth() != 0 || !t.is("}")) continue;
      head.body_end = i;
      // A constructor's initialisers may have braces, too.
      const Token& next = tokens_[tokens_.after_directives(i + 1, end)];
      if (ends_with_body && !next.is(",") && !next.is("{") && !next.is("catch")) {
        ++i;
        break;
      }
    }
    head.crosses = head.crosses || nesting.crosses() || nesting.depth() != 0;
    return i;
  }

  struct Member {
    std::size_t declaration, begin, end;
  };
  const std::string_view text_;
  const TokenView tokens_;
  const HeadReader heads_;
  const Macros& macros_;
  std::string scope_;  ///< the namespaces around the place that is read
  std::vector<Declaration> out_;
  std::size_t unpaired_;         ///< the first token from which declarations may end somewhere else
  std::vector<Member> members_;  ///< of the class that is being read
  Words nested_;                 ///< names of the classes inside of it that are being read
};

}  // namespace

std::vector<Declaration> outline_of(std::string_view text, const std::vector<Token>& tokens,
                                    const Macros& macros) {
  return Outliner(text, tokens, macros).run();
}

}  // namespace kiln::source
