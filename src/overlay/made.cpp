#include "overlay/made.hpp"

#include <algorithm>

#include "overlay/brackets.hpp"
#include "overlay/expansion.hpp"
#include "overlay/head.hpp"

namespace kiln::source {
namespace {

bool has_token(const TokenView& view, TokenRange range, std::string_view word) {
  for (std::size_t i = range.begin; i < range.end && !view[i].is("{"); ++i)
    if (view[i].is(word)) return true;
  return false;
}
/// The part of a declaration that gives its names, as a declaration of its own.
std::string naming_part(const Declaration& d, std::string_view text) {
  const std::string_view all = text.substr(d.begin, d.end - d.begin);
  if (d.defined()) return std::string(text.substr(d.begin, d.body_begin - d.begin)) + "{}";
  const std::size_t brace = all.find('{');
  const bool is_enum = all.substr(0, brace).find("enum") != std::string_view::npos;
  if (d.kind != DeclarationKind::named || brace == std::string_view::npos || is_enum) return std::string(all);
  return std::string(all.substr(0, brace)) + "{};";
}

}  // namespace

/// True for a macro that may make more than a part of one declaration.
bool MadeDeclarations::makes_more(std::string_view name) {
  const auto found = makes_more_.find(name);
  if (found != makes_more_.end()) return found->second;
  return makes_more_[name] = macros_.completes(name) || macros_.reaches_pragma(name);
}
/// The macros in a declaration, outside of its brackets and its body, that may change what it declares.
std::vector<std::string_view> MadeDeclarations::naming_macros(const Declaration& d,
                                                              const std::vector<Token>& tokens) {
  std::vector<std::string_view> out;
  const bool named = d.kind == DeclarationKind::function || d.kind == DeclarationKind::named;
  if (!named && d.kind != DeclarationKind::call) return out;
  const TokenView view(tokens);
  const bool is_enum = has_token(view, d.tokens, "enum");
  for (std::size_t i = d.tokens.begin; i < d.tokens.end; ++i) {
    if (view[i].is("{") && !is_enum) break;
    const bool call = view[i + 1].is("(") && i + 1 < d.tokens.end;
    const bool known = view[i].is_word() && macros_.find(view[i].text);
    if (known && ((call && macros_.is_called(view[i].text)) || contains(d.names, view[i].text) ||
                  makes_more(view[i].text)))
      out.push_back(view[i].text);
    if (view[i].is("(") || view[i].is("[")) i = view.after_group(i, d.tokens.end) - 1;
  }
  return out;
}

MadeDeclarations::Made MadeDeclarations::read(Declaration& d, std::string_view text,
                                              const std::vector<Token>& tokens) {
  Made out;
  const std::vector<std::string_view> used = naming_macros(d, tokens);
  if (used.empty()) return out;

  const auto expansions = expansions_of(macros_, naming_part(d, text));
  if (!expansions) {
    out.whole = true;
    return out;
  }
  std::vector<std::string_view> names, arguments;
  bool understood = true, special = true, type = false, function = false;
  for (const std::string& made : *expansions) {
    const std::string& expanded = expanded_.emplace_back(made);
    for (const Declaration& inner : outline_of(expanded, tokens_of(expanded), macros_)) {
      if (inner.parent != kNoDeclaration) continue;
      understood = understood && inner.kind != DeclarationKind::fixed;
      special = special && inner.specialisation;
      type = type || inner.kind == DeclarationKind::named;
      function = function || inner.kind == DeclarationKind::function;
      for (const std::string_view word : inner.specifiers) out.marks |= macros_.marks_of(word);
      names.insert(names.end(), inner.names.begin(), inner.names.end());
      arguments.insert(arguments.end(), inner.arguments.begin(), inner.arguments.end());
    }
  }
  const bool call = d.kind == DeclarationKind::call;
  // SPEC(float) { ... } and struct NAME(a) { ... } look like functions.
  const bool looks = d.kind == DeclarationKind::function && type && !function;
  if (looks) d.kind = DeclarationKind::named;
  if (call || looks) {
    d.specialisation = special && !names.empty();
    if (d.specialisation) d.arguments = std::move(arguments);
  }
  if (!names.empty()) d.names = std::move(names);
  if (call) return out;
  const bool more = std::any_of(used.begin(), used.end(), [&](std::string_view name) {
    return makes_more(name) && makes_device_code({name});
  });
  out.whole = !understood || more;
  return out;
}

bool MadeDeclarations::makes_device_code(const std::vector<std::string_view>& words) const {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    if (word == "_Pragma" || word == "__pragma") return true;
    if (!macros_.find(word)) return false;
    const Marks marks = macros_.marks_of(word);
    return marks.device || marks.constant || marks.type || macros_.reaches_pragma(word);
  });
}

}  // namespace kiln::source
