#include "overlay/expansion.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "overlay/brackets.hpp"
#include "overlay/head.hpp"

namespace kiln::source {
namespace {

constexpr std::size_t kMostChoices = 16, kMostExpandedTokens = 1 << 17;
constexpr int kMostHidden = 64;

/// A macro that is expanded no more inside of its own expansion.
struct Hidden {
  std::string_view name;
  std::shared_ptr<const Hidden> next;
  int depth = 1;
};
using HiddenList = std::shared_ptr<const Hidden>;
struct Part {
  Token token;
  HiddenList hidden;
};
using Parts = std::vector<Part>;

bool hides(const HiddenList& hidden, std::string_view name) {
  for (const Hidden* h = hidden.get(); h; h = h->next.get())
    if (h->name == name) return true;
  return false;
}

/// One expansion. A token that ## or # makes lives as long as this object.
class Expander {
 public:
  /// The definition of each macro that has several.
  using Choice = std::unordered_map<std::string_view, std::size_t>;

  Expander(const Macros& macros, const Choice& choice) : macros_(macros), choice_(choice) {}

  /// Sets `too_large` instead of going on for ever.
  Parts expand(const Parts& text) {
    std::deque<Part> left(text.begin(), text.end());
    Parts out;
    while (!left.empty() && !too_large) {
      if (++spent_ > kMostExpandedTokens) too_large = true;
      Part part = left.front();
      left.pop_front();
      const MacroDefinition* macro = part.token.is_word() ? definition(part.token.text) : nullptr;
      const bool call = !left.empty() && left.front().token.is("(");
      std::vector<Parts> arguments;
      if (!macro || hides(part.hidden, macro->name) || (macro->called && !call) ||
          (macro->called && !take_arguments(left, *macro, arguments))) {
        out.push_back(std::move(part));
        continue;
      }
      Parts replaced = substitute(*macro, arguments, part.hidden);
      left.insert(left.begin(), std::make_move_iterator(replaced.begin()),
                  std::make_move_iterator(replaced.end()));
      spent_ += replaced.size();
    }
    return out;
  }

  std::size_t spent() const { return spent_; }

  bool too_large = false;

 private:
  const MacroDefinition* definition(std::string_view name) const {
    const auto* all = macros_.definitions(name);
    if (!all) return nullptr;
    const auto chosen = choice_.find(name);
    return &(*all)[chosen == choice_.end() ? all->size() - 1 : chosen->second];
  }
  /// Takes the arguments with their parentheses. Takes nothing when there is no closing one.
  static bool take_arguments(std::deque<Part>& left, const MacroDefinition& macro, std::vector<Parts>& out) {
    int depth = 0;
    out.emplace_back();
    for (std::size_t i = 0; i < left.size(); ++i) {
      const Token& t = left[i].token;
      if (t.is(")") && depth == 1) {
        left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        return true;
      }
      const bool last = macro.variadic && out.size() >= macro.parameters.size();
      if (t.is(",") && depth == 1 && !last)
        out.emplace_back();
      else if (depth > 0)
        out.back().push_back(left[i]);
      if (t.is("(")) ++depth;
      if (t.is(")")) --depth;
    }
    return false;
  }
  Parts substitute(const MacroDefinition& macro, const std::vector<Parts>& arguments,
                   const HiddenList& hidden) {
    const std::vector<Token>& from = macro.replacement;
    const auto joins = [&](std::size_t i) {
      return i + 1 < from.size() && from[i].is("#") && from[i + 1].is("#");
    };
    const Parts nothing;
    const auto argument = [&](std::string_view word) -> const Parts* {
      const auto found = std::find(macro.parameters.begin(), macro.parameters.end(), word);
      if (found == macro.parameters.end()) return nullptr;
      const auto k = static_cast<std::size_t>(std::distance(macro.parameters.begin(), found));
      return k < arguments.size() ? &arguments[k] : &nothing;
    };
    Parts out;
    bool join = false;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (joins(i)) {
        join = true;
        ++i;
        continue;
      }
      if (from[i].is("__VA_OPT__")) continue;
      Parts next;
      if (from[i].is("#") && i + 1 < from.size() && argument(from[i + 1].text)) {
        next.push_back({{Token::Kind::literal, "\"\""}, hidden});
        ++i;
      } else if (const Parts* parts = argument(from[i].text)) {
        next = join || joins(i + 1) ? *parts : expand(*parts);
      } else {
        next.push_back({from[i], hidden});
      }
      if (join) join_to(out, next);
      join = false;
      for (Part& part : next) {
        const int depth = part.hidden ? part.hidden->depth + 1 : 1;
        too_large = too_large || depth > kMostHidden;
        part.hidden = std::make_shared<const Hidden>(Hidden{macro.name, part.hidden, depth});
        out.push_back(std::move(part));
      }
    }
    return out;
  }
  /// Makes one token of the last of `out` and the first of `next`. GNU C takes a comma away that nothing follows.
  void join_to(Parts& out, Parts& next) {
    if (out.empty()) return;
    if (out.back().token.is(",")) {
      if (next.empty()) out.pop_back();
      return;
    }
    if (next.empty()) return;
    made_.push_back(std::string(out.back().token.text) + std::string(next.front().token.text));
    const std::vector<Token> tokens = tokens_of(made_.back());
    next.front().token = {tokens.empty() ? Token::Kind::symbol : tokens[0].kind, made_.back()};
    out.pop_back();
  }

  const Macros& macros_;
  const Choice& choice_;
  std::deque<std::string> made_;
  std::size_t spent_ = 0;
};

/// The macros with several definitions that the tokens reach.
std::vector<std::string_view> ambiguous_macros(const Macros& macros, const std::vector<Token>& tokens) {
  std::vector<std::string_view> out, waiting;
  std::unordered_set<std::string_view> seen;
  for (const Token& token : tokens) waiting.push_back(token.text);
  while (!waiting.empty()) {
    const std::string_view word = waiting.back();
    waiting.pop_back();
    const auto* all = macros.definitions(word);
    if (!all || !seen.insert(word).second) continue;
    if (all->size() > 1) out.push_back(word);
    const auto* words = macros.find(word);
    waiting.insert(waiting.end(), words->begin(), words->end());
  }
  return out;
}

}  // namespace

std::optional<std::vector<std::string>> expansions_of(const Macros& macros, std::string_view text) {
  if (!macros.spend(1)) return std::nullopt;
  const std::vector<Token> tokens = tokens_of(text);
  const std::vector<std::string_view> ambiguous = ambiguous_macros(macros, tokens);
  std::size_t choices = 1;
  for (const std::string_view name : ambiguous) {
    choices *= macros.definitions(name)->size();
    if (choices > kMostChoices) return std::nullopt;
  }
  Parts parts;
  for (const Token& token : tokens) {
    if (token.kind != Token::Kind::directive) parts.push_back({token, nullptr});
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < choices; ++i) {
    Expander::Choice choice;
    std::size_t rest = i;
    for (const std::string_view name : ambiguous) {
      choice[name] = rest % macros.definitions(name)->size();
      rest /= macros.definitions(name)->size();
    }
    Expander expander(macros, choice);
    std::string& joined = out.emplace_back();
    for (const Part& part : expander.expand(parts)) {
      if (!joined.empty()) joined += ' ';
      joined += part.token.text;
    }
    macros.spend(expander.spent());
    if (expander.too_large) return std::nullopt;
  }
  return out;
}

MacroEnd end_of_call(const Macros& macros, std::string_view call) {
  const auto expansions = expansions_of(macros, call);
  if (!expansions) return MacroEnd::unclear;
  bool open = false;
  for (const std::string& text : *expansions) {
    if (text.ends_with(';') || text.ends_with('}')) return MacroEnd::closed;
    const std::vector<Token> tokens = tokens_of(text);
    // An unknown macro may be the end.
    open = open || (!tokens.empty() && !(is_macro_like(tokens[0].text) && tokens.back().is(")")));
  }
  return open ? MacroEnd::open : MacroEnd::unclear;
}

}  // namespace kiln::source
