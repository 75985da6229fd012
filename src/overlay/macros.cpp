#include "overlay/macros.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_set>

#include "overlay/brackets.hpp"

namespace kiln::source {
namespace {

/// The marks of a keyword; nothing for other words.
Marks keyword_marks(std::string_view word) {
  if (word == "__global__") return {.global = true, .device = true};
  if (word == "__device__") return {.device = true};
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
      if (dots) out.parameters.emplace_back("__VA_ARGS__");
    }
    begin = std::min(begin + 1, tokens.size());
  }
  out.replacement.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end());
  int depth = 0;
  for (const Token& t : out.replacement) depth += t.is("{") ? 1 : t.is("}") ? -1 : 0;
  out.braces = depth != 0;
  return out;
}

}  // namespace

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
  return *this;
}

void Macros::add(const std::vector<Token>& tokens) {
  for (MacroDefinition& macro : macros_of(tokens)) {
    if (macro.braces) scopes_.insert(macro.name);
    Known& known = known_[macro.name];
    known.words.insert(known.words.end(), macro.parameters.begin(), macro.parameters.end());
    const auto words = TokenView(macro.replacement).words(0, macro.replacement.size());
    known.words.insert(known.words.end(), words.begin(), words.end());
    known.last = std::move(macro);
  }
}

const std::vector<std::string_view>* Macros::find(std::string_view name) const {
  const auto found = known_.find(name);
  return found == known_.end() ? nullptr : &found->second.words;
}

Marks Macros::marks_of(std::string_view word) const {
  Marks out;
  std::unordered_set<std::string_view> seen;
  std::vector<std::string_view> waiting{word};
  while (!waiting.empty()) {
    const std::string_view next = waiting.back();
    waiting.pop_back();
    out |= keyword_marks(next);
    const auto* words = find(next);
    if (words && seen.insert(next).second)
      waiting.insert(waiting.end(), words->begin(), words->end());
    else if (!words)
      out.device = out.device || is_device_like(next);
  }
  return out;
}

bool Macros::instantiates(std::string_view name) const {
  std::unordered_set<std::string_view> seen;
  while (seen.insert(name).second) {
    const auto found = known_.find(name);
    if (found == known_.end() || found->second.last.replacement.empty()) return false;
    const std::vector<Token>& text = found->second.last.replacement;
    if (text[0].is("template")) return text.size() > 1 && !text[1].is("<");
    name = text[0].text;
  }
  return false;
}

bool Macros::declares_kernel(std::string_view name) const {
  const auto found = known_.find(name);
  return found != known_.end() && found->second.last.called && marks_of(name).global;
}

std::string Macros::expanded(std::string_view declaration) const {
  const std::vector<Token> tokens = tokens_of(declaration);
  const TokenView view(tokens);
  const auto offset = [&](std::size_t i) {
    return static_cast<std::size_t>(view[i].text.data() - declaration.data());
  };
  for (std::size_t i = 0; i + 1 < tokens.size() && !tokens[i].is("{"); ++i) {
    const auto found = known_.find(tokens[i].text);
    if (found == known_.end() || !found->second.last.called || !tokens[i + 1].is("(")) continue;
    const MacroDefinition& macro = found->second.last;
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
