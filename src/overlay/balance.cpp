#include "overlay/balance.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "overlay/brackets.hpp"

namespace kiln::source {
namespace {

bool opens(const Token& t) { return t.is("{") || t.is("(") || t.is("["); }
bool closes(const Token& t) { return t.is("}") || t.is(")") || t.is("]"); }

/// The '{' of the namespace or of the extern "C" that begins at i; `none` when none does.
std::size_t scope_brace(const TokenView& tokens, std::size_t i, std::size_t none) {
  if (tokens[i].is("extern") && tokens[i + 1].kind == Token::Kind::literal && tokens[i + 2].is("{"))
    return i + 2;
  if (!tokens[i].is("namespace")) return none;
  do ++i;
  while (i < tokens.size() && !tokens[i].is("{") && !tokens[i].is(";") && !tokens[i].is("=") &&
         !tokens[i].is("}") && !tokens[i].is("namespace"));
  return i < tokens.size() && tokens[i].is("{") ? i : none;
}

/// How a text moves the depth of brackets: to its lowest point, and in all.
struct Shift {
  int low = 0, net = 0;

  void add(const Shift& next) {
    low = std::min(low, net + next.low);
    net += next.net;
  }
  bool operator==(const Shift&) const = default;
};

class Pairing {
 public:
  Pairing(const std::vector<Token>& tokens, const Macros& macros) : tokens_(tokens), macros_(macros) {}

  std::size_t run() {
    std::size_t scope = tokens_.size();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const Token& t = tokens_[i];
      if (t.kind == Token::Kind::directive) {
        if (const auto unpaired = directive(i)) return *unpaired;
        continue;
      }
      scope = scope_brace(tokens_, i, scope);
      if (i == scope) continue;
      if (opens(t)) move({0, 1});
      // An else stands in a body, so no declaration ends at this depth.
      if (t.is("}") && tokens_[i + 1].is("else") && !branches_.empty() && depth_ > 1)
        branches_.back().floor = std::min(branches_.back().floor, depth_ - 1);
      if (closes(t) && depth_ > 0)
        move({-1, -1});
      else if (closes(t) && !t.is("}"))  // a '}' closes a namespace
        return i;
      if (t.is_word() && !takes_part(t, i)) return i;
    }
    return branches_.empty() ? tokens_.size() : branches_.front().at;
  }

 private:
  struct Branch {
    std::size_t at = 0;  ///< its #if
    int start = 0, low = 0;
    int floor = 0;           ///< the lowest depth that is inside of the declaration
    std::optional<int> end;  ///< of the branches before
    bool last = false;       ///< it is the #else
  };

  void move(const Shift& shift) {
    if (!branches_.empty()) branches_.back().low = std::min(branches_.back().low, depth_ + shift.low);
    depth_ += shift.net;
  }
  /// False for a macro that hides a bracket which this text would need to know.
  bool takes_part(const Token& word, std::size_t i) {
    const auto* all = macros_.definitions(word.text);
    if (!all) return true;
    if (all->size() >= kMostDefinitions) return false;
    const bool call = tokens_[i + 1].is("(");
    for (const MacroDefinition& macro : *all) {
      if (macro.called && !call) continue;
      const Shift shift = shift_of(macro);
      if (depth_ == 0 ? shift.net > 0 : shift.net != 0 || depth_ + shift.low < 1) return false;
    }
    return true;
  }
  std::optional<std::size_t> directive(std::size_t i) {
    const std::string_view name = directive_text(tokens_[i].text).name;
    if (name == "if" || name == "ifdef" || name == "ifndef") {
      branches_.push_back({i, depth_, depth_, depth_, std::nullopt, false});
    } else if ((name.starts_with("el") || name == "endif") && !branches_.empty()) {
      Branch& branch = branches_.back();
      if (branch.low < branch.floor || branch.end.value_or(depth_) != depth_) return branch.at;
      if (name == "endif" && !branch.last && depth_ != branch.start) return branch.at;
      branch.end = depth_;
      branch.last = name == "else";
      if (name == "endif") {
        branches_.pop_back();
      } else {
        depth_ = branch.low = branch.floor = branch.start;
      }
    }
    return std::nullopt;
  }
  Shift shift_of(const MacroDefinition& macro) {
    const auto [known, fresh] = shifts_.try_emplace(&macro);
    if (!fresh) return known->second;  // also while it is computed
    const TokenView text(macro.replacement);
    Shift out;
    std::size_t scope = text.size();
    for (std::size_t i = 0; i < text.size(); ++i) {
      scope = scope_brace(text, i, scope);
      if (i == scope) continue;
      if (opens(text[i])) out.add({0, 1});
      if (closes(text[i])) out.add({-1, -1});
      const auto* all = text[i].is_word() ? macros_.definitions(text[i].text) : nullptr;
      if (all && nested_ < kMostNested) {
        ++nested_;
        out.add(shift_of(all->back()));
        --nested_;
      }
    }
    return shifts_[&macro] = out;
  }

  static constexpr int kMostNested = 200;
  const TokenView tokens_;
  const Macros& macros_;
  std::vector<Branch> branches_;
  std::unordered_map<const MacroDefinition*, Shift> shifts_;
  int depth_ = 0, nested_ = 0;
};

}  // namespace

std::size_t first_unpaired(const std::vector<Token>& tokens, const Macros& macros) {
  return Pairing(tokens, macros).run();
}

}  // namespace kiln::source
