#include "tools/kiln/import/declaration.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_map>

#include "base/text.hpp"

namespace kiln::cli {
namespace {

using source::Declaration;
using source::DeclarationKind;
using source::TokenRange;
using source::TokenView;

template <std::size_t N>
bool listed(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
constexpr std::array<std::string_view, 18> kTypeWords = {
    "int",   "bool",   "unsigned", "signed",  "long",     "short",   "char",     "auto", "size_t",
    "float", "double", "void",     "int32_t", "uint32_t", "int64_t", "uint64_t", "half", "__half"};
constexpr std::array<std::string_view, 10> kDropped = {
    "__grid_constant__", "__restrict__", "__restrict", "restrict", "volatile",
    "register",          "typename",     "struct",     "class",    "enum"};

Tokens slice(const Tokens& tokens, std::size_t begin, std::size_t end) {
  return {std::next(tokens.begin(), static_cast<std::ptrdiff_t>(begin)),
          std::next(tokens.begin(), static_cast<std::ptrdiff_t>(end))};
}
std::vector<Tokens> pieces(const Tokens& tokens, std::size_t begin, std::size_t end) {
  std::vector<Tokens> out;
  for (const TokenRange& piece : TokenView(tokens).pieces(begin, end))
    out.push_back(slice(tokens, piece.begin, piece.end));
  return out;
}

/// Takes the default after '=' away from `tokens`.
Tokens take_fallback(Tokens& tokens) {
  const TokenView view(tokens);
  for (std::size_t i = 0; i < tokens.size();) {
    if (tokens[i].is("=")) {
      Tokens out = slice(tokens, i + 1, tokens.size());
      tokens.resize(i);
      return out;
    }
    const bool group = tokens[i].is("(") || tokens[i].is("[") || tokens[i].is("{");
    i = group ? view.after_group(i, tokens.size()) : i + 1;
  }
  return {};
}

/// Drops attributes, and words that say nothing about the type.
Tokens without_attributes(const Tokens& tokens) {
  const TokenView view(tokens);
  Tokens out;
  for (std::size_t i = 0; i < tokens.size();) {
    const bool attribute = tokens[i].is("[") && view[i + 1].is("[");
    if (!attribute && !listed(tokens[i].text, kDropped)) out.push_back(tokens[i]);
    i = attribute ? view.after_group(i, tokens.size()) : i + 1;
  }
  return out;
}

/// Takes the name away from a declarator's tokens: T x, T x[4], T (*x)(int). Empty when it has none.
std::string take_name(Tokens& tokens) {
  for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
    if (!tokens[i].is("(") || !(tokens[i + 1].is("*") || tokens[i + 1].is("&")) || !tokens[i + 2].is_word())
      continue;
    std::string name(tokens[i + 2].text);
    tokens.erase(std::next(tokens.begin(), static_cast<std::ptrdiff_t>(i) + 2));
    return name;
  }
  std::size_t end = tokens.size();
  while (end > 0 && tokens[end - 1].is("]"))
    while (end > 0 && !tokens[--end].is("[")) continue;
  const bool array = end < tokens.size();
  tokens.resize(end);
  const auto words = std::count_if(tokens.begin(), tokens.end(),
                                   [](const Token& t) { return t.is_word() && !t.is("const"); });
  std::string name;
  if (words > 1 && tokens.back().is_word() && !tokens.back().is("const") &&
      !tokens[tokens.size() - 2].is("::") && !listed(tokens.back().text, kTypeWords)) {
    name = tokens.back().text;
    tokens.pop_back();
  }
  if (array) tokens.push_back({Token::Kind::symbol, "*"});
  return name;
}

DeclaredParameter parameter_of(Tokens tokens) {
  using Kind = DeclaredParameter::Kind;
  DeclaredParameter out;
  out.declared = joined(tokens);
  out.fallback = take_fallback(tokens);
  const bool pack = std::erase_if(tokens, [](const Token& t) { return t.is("."); }) > 0;
  const bool introduced = !tokens.empty() && (tokens[0].is("typename") || tokens[0].is("class"));
  if (!tokens.empty() && tokens[0].is("template")) out.kind = Kind::template_template;
  if (introduced && tokens.size() <= 2) {
    out.kind = Kind::type;
    if (tokens.size() == 2) out.name = tokens[1].text;
  } else {
    tokens = without_attributes(tokens);
    out.name = take_name(tokens);
    out.type = joined(tokens);
  }
  if (pack) out.kind = Kind::pack;
  return out;
}

class KernelReader {
 public:
  KernelReader(const SourceText& text, const Declaration& declaration)
      : text_(text),
        declaration_(declaration),
        tokens_(slice(text.tokens, declaration.tokens.begin, declaration.tokens.end)),
        view_(tokens_) {}

  /// False for a specialisation, and for text that is no function after all.
  bool read(KernelDeclaration& out, const Assignments& define) const {
    std::size_t at = 0;
    while (view_[at].is("template") && view_[at + 1].is("<")) {
      const std::size_t end = view_.after_angles(at + 1, tokens_.size());
      if (end == at + 3) return false;  // template <>
      out.is_template = true;
      for (const Tokens& piece : pieces(tokens_, at + 2, end - 1)) {
        std::string& type = out.parameters.emplace_back(parameter_of(piece)).type;
        if (type.starts_with("const ")) type.erase(0, 6);
      }
      at = end;
    }
    const std::size_t name = name_after(at);
    if (!view_[name + 1].is("(")) return false;
    attributes(out, at, name);
    std::string qualifier;  // of a kernel that is defined outside of its namespace
    for (std::size_t i = name; i >= 2 && tokens_[i - 1].is("::") && tokens_[i - 2].is_word(); i -= 2)
      qualifier = std::string(tokens_[i - 2].text) + (qualifier.empty() ? "" : "::") + qualifier;
    out.scope = declaration_.scope;
    if (!qualifier.empty()) out.scope += (out.scope.empty() ? "" : "::") + qualifier;
    out.name = tokens_[name].text;
    for (const auto& [macro, replacement] : define)
      if (out.name == macro && base::is_identifier(replacement)) out.name = replacement;
    out.path = text_.path;
    out.line = text_.line_of(tokens_[name]);
    const std::size_t end = view_.after_group(name + 1, tokens_.size());
    const bool none = end == name + 4 && tokens_[name + 2].is("void");
    if (!none)
      for (const Tokens& piece : pieces(tokens_, name + 2, end - 1))
        out.arguments.push_back(parameter_of(piece));
    out.defined = declaration_.defined();
    std::size_t body = end;
    while (body < tokens_.size() && !tokens_[body].is("{")) ++body;
    attributes(out, end, body);
    uses(out);
    return true;
  }

 private:
  std::size_t name_after(std::size_t at) const {
    const auto& names = declaration_.names;
    for (; at < tokens_.size(); ++at)
      if (std::find(names.begin(), names.end(), tokens_[at].text) != names.end() &&
          (view_[at + 1].is("(") || view_[at + 1].is("<")))
        break;
    return at;
  }
  void attributes(KernelDeclaration& out, std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) {
      const bool bounds = tokens_[i].is("__launch_bounds__"), cluster = tokens_[i].is("__cluster_dims__");
      if ((bounds || cluster) && view_[i + 1].is("("))
        (bounds ? out.bounds : out.cluster) = pieces(tokens_, i + 2, view_.after_group(i + 1, end) - 1);
    }
  }
  void uses(KernelDeclaration& out) const {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const Token &t = tokens_[i], &next = view_[i + 1], &after = view_[i + 2];
      const auto says = [&](std::string_view what) { return t.text.find(what) != std::string_view::npos; };
      out.grid_sync = out.grid_sync || says("this_grid") || says("grid_group");
      out.dependent_launch =
          out.dependent_launch || says("griddepcontrol") || says("cudaGridDependencySynchronize");
      if (t.is("extern") && (next.is("__shared__") || after.is("__shared__"))) out.dynamic_shared = true;
      if (!t.is_word()) continue;
      if (next.is("::") && after.is_word()) out.members[std::string(t.text)].emplace(after.text);
      if (next.is("(")) out.called.emplace(t.text);
    }
  }

  const SourceText& text_;
  const Declaration& declaration_;
  const Tokens tokens_;
  const TokenView view_;
};

/// Two declarations with one signature declare one kernel.
std::string signature_of(const KernelDeclaration& kernel) {
  std::string out = kernel.qualified();
  for (const DeclaredParameter& argument : kernel.arguments) out += '\n' + argument.type;
  return out;
}

}  // namespace

std::string joined(const Tokens& tokens) {
  const auto wordlike = [](const Token& t) {
    return t.kind == Token::Kind::word || t.kind == Token::Kind::literal;
  };
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool after_symbol = i > 0 && (tokens[i - 1].is("*") || tokens[i - 1].is("&") ||
                                        tokens[i - 1].is(">") || tokens[i - 1].is("."));
    const bool after_word = i > 0 && (wordlike(tokens[i - 1]) || after_symbol);
    if (i > 0 && (tokens[i - 1].is(",") || (wordlike(tokens[i]) && after_word))) out += ' ';
    out += tokens[i].text;
  }
  return out;
}

std::string KernelDeclaration::text() const {
  std::vector<std::string> list, taken;
  for (const DeclaredParameter& p : parameters) list.push_back(p.declared);
  for (const DeclaredParameter& a : arguments) taken.push_back(a.declared);
  return qualified() + (is_template ? '<' + base::join(list, ", ") + '>' : "") + '(' +
         base::join(taken, ", ") + ')';
}

std::vector<KernelDeclaration> kernels_of(const SourceTexts& texts) {
  std::vector<KernelDeclaration> out;
  std::unordered_map<std::string, std::size_t> known;  // signature -> place in `out`
  for (const SourceText& text : texts.all()) {
    for (const Declaration& d : text.declarations) {
      if (d.kind != DeclarationKind::function || texts.macros().declares_kernel(d.names.back())) continue;
      if (std::none_of(d.specifiers.begin(), d.specifiers.end(),
                       [&](std::string_view word) { return texts.macros().marks_of(word).global; }))
        continue;
      KernelDeclaration read;
      if (!KernelReader(text, d).read(read, texts.define())) continue;
      const auto [same, fresh] = known.try_emplace(signature_of(read), out.size());
      if (fresh)
        out.push_back(std::move(read));
      else if (!out[same->second].defined && read.defined)
        out[same->second] = std::move(read);
    }
  }
  return out;
}

std::vector<const KernelDeclaration*> kernels_named(const std::vector<KernelDeclaration>& kernels,
                                                    std::string_view wanted) {
  const bool whole = wanted.starts_with("::");
  if (whole) wanted.remove_prefix(2);
  const std::string end = "::" + std::string(wanted);
  std::vector<const KernelDeclaration*> out;
  for (const KernelDeclaration& kernel : kernels) {
    const std::string name = kernel.qualified();
    if (name == wanted || (!whole && !wanted.empty() && name.ends_with(end))) out.push_back(&kernel);
  }
  return out;
}

bool is_overloaded(const std::vector<KernelDeclaration>& kernels, const KernelDeclaration& kernel) {
  return std::count_if(kernels.begin(), kernels.end(), [&](const KernelDeclaration& other) {
           return other.qualified() == kernel.qualified();
         }) > 1;
}

}  // namespace kiln::cli
