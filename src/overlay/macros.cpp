#include "overlay/macros.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <unordered_set>

#include "overlay/brackets.hpp"
#include "overlay/head.hpp"

namespace kiln::source {
namespace {

/// Macros that one macro reaches, and macros inside of each other. Of more, anything is expected.
constexpr std::size_t kMostReached = 2048, kMostNested = 200;

/// The marks of a keyword; nothing for other words.
Marks keyword_marks(std::string_view word) {
  constexpr std::array<std::string_view, 5> kBounds = {"__launch_bounds__", "__maxnreg__", "__cluster_dims__",
                                                       "__block_size__", "__attribute__"};
  if (std::find(kBounds.begin(), kBounds.end(), word) != kBounds.end()) return {.bounds = true};
  if (word == "auto") return {.placeholder = true};
  if (word == "virtual" || word == "override" || word == "final") return {.dispatched = true};
  if (word == "friend") return {.is_friend = true};
  if (word == "__global__") return {.global = true, .device = true};
  if (word == "__device__" || word == "__constant__" || word == "__managed__") return {.device = true};
  if (word == "constexpr" || word == "consteval") return {.constant = true};
  if (word == "struct" || word == "class" || word == "using" || word == "enum") return {.type = true};
  return {};
}

bool is_device_like(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  return has("DEVICE") || has("KERNEL") || has("GLOBAL");
}

/// The definition that a directive gives. Its name is empty when the directive defines nothing.
MacroDefinition definition_in(const DirectiveText& directive) {
  MacroDefinition out;
  if (directive.name != "define") return out;
  std::vector<Token> tokens = tokens_of(directive.rest);
  if (tokens.empty() || !tokens[0].is_word()) return out;
  out.name = tokens[0].text;
  std::size_t begin = 1;
  // With a blank before it, the '(' belongs to the replacement.
  out.called =
      tokens.size() > 1 && tokens[1].is("(") && tokens[1].text.data() == out.name.data() + out.name.size();
  if (out.called) {
    for (begin = 2; begin < tokens.size() && !tokens[begin].is(")"); ++begin) {
      const bool dots = tokens[begin].is(".") && tokens[begin - 1].is(".") && tokens[begin - 2].is(".");
      if (tokens[begin].is_word()) out.parameters.push_back(tokens[begin].text);
      if (!dots) continue;
      out.variadic = true;
      if (!tokens[begin - 3].is_word()) out.parameters.emplace_back("__VA_ARGS__");
    }
    begin = std::min(begin + 1, tokens.size());
  }
  out.replacement.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end());
  int depth = 0;
  for (const Token& t : out.replacement) depth += t.is("{") ? 1 : t.is("}") ? -1 : 0;
  out.braces = depth != 0;
  return out;
}

bool is_same(const MacroDefinition& a, const MacroDefinition& b) {
  return a.called == b.called && a.variadic == b.variadic && a.parameters == b.parameters &&
         std::equal(a.replacement.begin(), a.replacement.end(), b.replacement.begin(), b.replacement.end(),
                    [](const Token& left, const Token& right) { return left.is(right.text); });
}

bool is_pragma(std::string_view word) { return word == "_Pragma" || word == "__pragma"; }

/// True when a pragma's text, which may be a string, begins with one of the words.
bool one_of_pragmas(std::string_view text, std::initializer_list<std::string_view> words) {
  text.remove_prefix(text.find('"') + 1);  // npos + 1 is 0
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}

/// The position after the explicit instantiation that begins at i; i when there is none.
std::size_t after_instantiation(const TokenView& text, std::size_t i) {
  std::size_t at = text[i].is("extern") ? i + 1 : i;
  if (!text[at].is("template") || text[at + 1].is("<")) return i;
  for (; at < text.size() && !text[at].is(";"); ++at)
    if (text[at].is("{") || text[at].is("}") || is_pragma(text[at].text)) return i;
  return std::min(at + 1, text.size());
}

/// `closed` for a text that is nothing but pragmas, `open` for another text.
MacroEnd end_of_pragmas(const TokenView& text) {
  std::size_t i = 0;
  while (i < text.size() && is_pragma(text[i].text)) i = text.after_group(i + 1, text.size());
  return i >= text.size() ? MacroEnd::closed : MacroEnd::open;
}

/// The position of the word before the parentheses that end at the end of a text, or the last word.
std::size_t last_call(const TokenView& text) {
  std::size_t at = text.size() - 1;
  if (text[at].is(")")) {
    for (int depth = 0; at > 0; --at) {
      if (text[at].is(")")) ++depth;
      if (text[at].is("(") && --depth == 0) break;
    }
    if (at > 0) --at;
  }
  return at;
}

}  // namespace

bool is_statement_pragma(std::string_view text) {
  return one_of_pragmas(text, {"unroll", "nounroll", "omp", "acc"});
}
bool is_lasting_pragma(std::string_view text) {
  return !is_statement_pragma(text) && !one_of_pragmas(text, {"GCC", "clang", "diag_", "nv_"});
}

std::vector<MacroDefinition> macros_of(const std::vector<Token>& tokens) {
  std::vector<MacroDefinition> out;
  for (const Token& token : tokens) {
    if (token.kind != Token::Kind::directive) continue;
    MacroDefinition macro = definition_in(directive_text(token.text));
    if (!macro.name.empty()) out.push_back(std::move(macro));
  }
  return out;
}

Marks& Marks::operator|=(const Marks& other) {
  global = global || other.global;
  device = device || other.device;
  constant = constant || other.constant;
  type = type || other.type;
  specialises = specialises || other.specialises;
  placeholder = placeholder || other.placeholder;
  bounds = bounds || other.bounds;
  dispatched = dispatched || other.dispatched;
  is_friend = is_friend || other.is_friend;
  return *this;
}

void Macros::add(const std::vector<Token>& tokens) {
  answers_ = {};
  for (MacroDefinition& macro : macros_of(tokens)) {
    if (macro.braces) scopes_.insert(macro.name);
    Known& known = known_[macro.name];
    known.words.insert(known.words.end(), macro.parameters.begin(), macro.parameters.end());
    const auto words = TokenView(macro.replacement).words(0, macro.replacement.size());
    known.words.insert(known.words.end(), words.begin(), words.end());
    if (known.definitions.size() >= kMostDefinitions) continue;
    std::erase_if(known.definitions, [&](const MacroDefinition& other) { return is_same(other, macro); });
    known.definitions.push_back(std::move(macro));
  }
}

const std::vector<std::string_view>* Macros::find(std::string_view name) const {
  const auto found = known_.find(name);
  return found == known_.end() ? nullptr : &found->second.words;
}

Marks Macros::marks_of(std::string_view word) const {
  const auto [known, fresh] = answers_.marks.try_emplace(word);
  if (!fresh) return known->second;
  Marks& out = known->second;
  std::unordered_set<std::string_view> seen;
  std::vector<std::string_view> waiting{word};
  while (!waiting.empty()) {
    const std::string_view next = waiting.back();
    waiting.pop_back();
    if (seen.size() > kMostReached) out = {true, true, true, true, true, true, true, true, true};
    if (seen.size() > kMostReached) break;
    out |= keyword_marks(next);
    const auto* words = find(next);
    if (words && seen.insert(next).second) {
      waiting.insert(waiting.end(), words->begin(), words->end());
      if (contains(*words, "__attribute__"))
        for (const std::string_view inner : *words) waiting.push_back(attribute_space(inner));
      for (const MacroDefinition& macro : *definitions(next))
        for (std::size_t i = 2; i < macro.replacement.size(); ++i)
          out.specialises =
              out.specialises || (macro.replacement[i - 2].is("template") &&
                                  macro.replacement[i - 1].is("<") && macro.replacement[i].is(">"));
    } else if (!words)
      out.device = out.device || is_device_like(next);
  }
  return out;
}

const std::vector<MacroDefinition>* Macros::definitions(std::string_view name) const {
  const auto found = known_.find(name);
  return found == known_.end() ? nullptr : &found->second.definitions;
}

std::vector<std::string_view> Macros::names() const {
  std::vector<std::string_view> out;
  for (const auto& [name, known] : known_) out.push_back(name);
  return out;
}

bool Macros::instantiates(std::string_view name) const {
  std::set<std::string_view> seen;
  const auto known = answers_.instantiates.find(name);
  return known == answers_.instantiates.end() ? instantiates(name, seen) : known->second;
}
bool Macros::instantiates(std::string_view name, std::set<std::string_view>& seen) const {
  const auto* all = definitions(name);
  if (const auto known = answers_.instantiates.find(name); known != answers_.instantiates.end())
    return known->second;
  if (!all || seen.size() > kMostNested || !seen.insert(name).second) return false;
  const bool each = std::all_of(all->begin(), all->end(), [&](const MacroDefinition& macro) {
    const TokenView text(macro.replacement);
    std::size_t i = 0;
    while (i < text.size()) {
      std::size_t next = after_instantiation(text, i);
      if (next == i) {
        if (contains(macro.parameters, text[i].text) || !instantiates(text[i].text, seen)) return false;
        next = text[i + 1].is("(") ? text.after_group(i + 1, text.size()) : i + 1;
        if (text[next].is(";")) ++next;
      }
      i = next;
    }
    return i != 0;
  });
  seen.erase(name);
  return answers_.instantiates[name] = each;
}

bool Macros::is_called(std::string_view name) const {
  const auto* all = definitions(name);
  return all &&
         std::any_of(all->begin(), all->end(), [](const MacroDefinition& macro) { return macro.called; });
}

MacroEnd Macros::end_of(std::string_view name) const {
  std::set<std::string_view> seen;
  return end_of(name, seen);
}
MacroEnd Macros::end_of(std::string_view name, std::set<std::string_view>& seen) const {
  const auto* all = definitions(name);
  if (const auto known = answers_.ends.find(name); known != answers_.ends.end()) return known->second;
  if (!all || seen.size() > kMostNested || !seen.insert(name).second) return MacroEnd::unclear;
  MacroEnd out = MacroEnd::open;
  for (const MacroDefinition& macro : *all) out = std::max(out, end_of(macro, seen));
  seen.erase(name);
  return answers_.ends[name] = out;
}
MacroEnd Macros::end_of(const MacroDefinition& macro, std::set<std::string_view>& seen) const {
  const TokenView text(macro.replacement);
  if (text.size() == 0) return MacroEnd::unclear;
  if (text[text.size() - 1].is(";") || text[text.size() - 1].is("}")) return MacroEnd::closed;
  const std::size_t last = last_call(text);
  const bool call = last + 1 < text.size();
  const std::string_view word = text[last].text;
  if (contains(macro.parameters, word)) return MacroEnd::unclear;
  if (is_pragma(word) && call) return end_of_pragmas(text);
  if (find(word)) return end_of(word, seen);
  return call && is_macro_like(word) ? MacroEnd::unclear : MacroEnd::open;
}

template <typename Property>
bool Macros::reaches(std::string_view name, Property property) const {
  std::unordered_set<std::string_view> seen;
  std::vector<std::string_view> waiting{name};
  while (!waiting.empty()) {
    const std::string_view next = waiting.back();
    waiting.pop_back();
    if (!seen.insert(next).second) continue;
    if (property(next) || seen.size() > kMostReached) return true;
    if (const auto* words = find(next)) waiting.insert(waiting.end(), words->begin(), words->end());
  }
  return false;
}

bool Macros::completes(std::string_view name) const {
  const auto [known, fresh] = answers_.completes.try_emplace(name);
  if (!fresh) return known->second;
  return answers_.completes[name] = reaches(name, [&](std::string_view word) {
           const auto* all = definitions(word);
           return all && std::any_of(all->begin(), all->end(), [](const MacroDefinition& macro) {
                    return std::any_of(macro.replacement.begin(), macro.replacement.end(),
                                       [](const Token& token) { return token.is(";") || token.is("}"); });
                  });
         });
}

bool Macros::reaches_pragma(std::string_view name) const {
  const auto [known, fresh] = answers_.pragmas.try_emplace(name);
  if (fresh) known->second = reaches(name, is_pragma);
  return known->second;
}

bool Macros::has_lasting_pragma(std::string_view name, std::string_view argument) const {
  return reaches_pragma(name) && reaches(name, [&](std::string_view word) {
           const auto* all = definitions(word);
           return all && std::any_of(all->begin(), all->end(), [&](const MacroDefinition& macro) {
                    const TokenView text(macro.replacement);
                    for (std::size_t i = 0; i < text.size(); ++i) {
                      const bool literal = text[i + 2].kind == Token::Kind::literal;  // not _Pragma(#x)
                      if (is_pragma(text[i].text) && is_lasting_pragma(literal ? text[i + 2].text : argument))
                        return true;
                    }
                    return false;
                  });
         });
}

std::size_t Macros::joined(std::string_view name) const {
  const auto* all = definitions(name);
  std::size_t most = 0;
  if (!all) return most;
  for (const MacroDefinition& macro : *all) {
    const TokenView text(macro.replacement);
    std::size_t words = 1;
    for (std::size_t i = 0; i + 2 < text.size(); ++i) {
      if (text[i].is("#") && text[i + 1].is("#")) {
        most = std::max(most, ++words);
        i += 2;
      } else if (!text[i + 1].is("#")) {
        words = 1;
      }
    }
  }
  return most;
}

bool Macros::declares_kernel(std::string_view name) const {
  const auto found = known_.find(name);
  return found != known_.end() && found->second.last().called && marks_of(name).global;
}

std::string Macros::expanded(std::string_view declaration) const {
  const std::vector<Token> tokens = tokens_of(declaration);
  const TokenView view(tokens);
  const auto offset = [&](std::size_t i) {
    return static_cast<std::size_t>(view[i].text.data() - declaration.data());
  };
  for (std::size_t i = 0; i + 1 < tokens.size() && !tokens[i].is("{"); ++i) {
    const auto found = known_.find(tokens[i].text);
    if (found == known_.end() || !found->second.last().called || !tokens[i + 1].is("(")) continue;
    const MacroDefinition& macro = found->second.last();
    const std::size_t end = view.after_group(i + 1, tokens.size());
    if (!tokens[end - 1].is(")")) return {};
    const std::vector<TokenRange> pieces = view.pieces(i + 2, end - 1);
    const auto argument = [&](std::string_view word) -> std::optional<std::string_view> {
      const auto parameter = std::find(macro.parameters.begin(), macro.parameters.end(), word);
      if (parameter == macro.parameters.end()) return std::nullopt;
      const auto k = static_cast<std::size_t>(std::distance(macro.parameters.begin(), parameter));
      if (k >= pieces.size()) return std::string_view();
      const std::size_t last = word == "__VA_ARGS__" ? end - 2 : pieces[k].end - 1;
      const std::size_t from = offset(pieces[k].begin);
      return declaration.substr(from, offset(last) + tokens[last].text.size() - from);
    };
    std::string out(declaration.substr(0, offset(i)));
    bool pastes = true;
    for (std::size_t k = 0; k < macro.replacement.size(); ++k) {
      const Token& t = macro.replacement[k];
      const bool pasted = t.is("#") && k + 1 < macro.replacement.size() && macro.replacement[k + 1].is("#");
      if (!pasted && !pastes) out += ' ';
      pastes = pasted;
      if (pasted)
        ++k;
      else
        out += argument(t.text).value_or(t.text);
    }
    return out + ' ' + std::string(declaration.substr(offset(end - 1) + 1));
  }
  return {};
}

}  // namespace kiln::source
