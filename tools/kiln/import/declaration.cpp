#include "tools/kiln/import/declaration.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace kiln::cli {
namespace {

using source::Declaration;
using source::DeclarationKind;

constexpr std::size_t kMostMacroDepth = 8;

bool is_name(const Token& t) { return t.kind == Token::Kind::word; }

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

/// The position after the bracket that closes the one at i. An angle bracket counts where it can be one of
/// template arguments.
std::size_t after_bracket(const Tokens& tokens, std::size_t i, std::size_t end) {
  std::string open;
  for (; i < end; ++i) {
    const Token& t = tokens[i];
    const bool after_name = i > 0 && is_name(tokens[i - 1]);
    if (t.is("(") || t.is("[") || t.is("{") || (t.is("<") && (after_name || open.empty()))) {
      open += t.text;
    } else if (t.is(">")) {
      const bool arrow = i > 0 && tokens[i - 1].is("-");
      if (!arrow && open.ends_with('<')) open.pop_back();
    } else if (t.is(")") || t.is("]") || t.is("}")) {
      while (open.ends_with('<') && open.size() > 1) open.pop_back();
      if (!open.empty()) open.pop_back();
    }
    if (open.empty()) return i + 1;
  }
  return end;
}
/// The pieces between commas outside of brackets.
std::vector<Tokens> pieces(const Tokens& tokens, std::size_t begin, std::size_t end) {
  std::vector<Tokens> out;
  std::size_t from = begin;
  for (std::size_t i = begin; i <= end; ++i) {
    if (i < end && !tokens[i].is(",")) {
      const Token& t = tokens[i];
      const bool angle = t.is("<") && i > begin && is_name(tokens[i - 1]);
      if (t.is("(") || t.is("[") || t.is("{") || angle) i = std::min(after_bracket(tokens, i, end), end) - 1;
      continue;
    }
    if (i > from)
      out.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(from),
                       tokens.begin() + static_cast<std::ptrdiff_t>(i));
    from = i + 1;
  }
  return out;
}
/// Takes the default after '=' away from `tokens`.
Tokens take_fallback(Tokens& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].is("(") || tokens[i].is("[") || tokens[i].is("{")) {
      i = after_bracket(tokens, i, tokens.size()) - 1;
    } else if (tokens[i].is("=")) {
      Tokens out(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1, tokens.end());
      tokens.resize(i);
      return out;
    }
  }
  return {};
}

TemplateParameter template_parameter(Tokens tokens) {
  TemplateParameter out;
  out.declared = joined(tokens);
  out.fallback = take_fallback(tokens);
  const auto dot = std::find_if(tokens.begin(), tokens.end(), [](const Token& t) { return t.is("."); });
  const bool pack = dot != tokens.end();
  std::erase_if(tokens, [](const Token& t) { return t.is("."); });
  for (std::size_t i = 0; i + 3 < tokens.size(); ++i) {  // T (*f)(const T&)
    if (!tokens[i].is("(") || !(tokens[i + 1].is("*") || tokens[i + 1].is("&")) || !is_name(tokens[i + 2]))
      continue;
    out.kind = TemplateParameter::Kind::value;
    out.name = tokens[i + 2].text;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    out.type = joined(tokens);
    return out;
  }
  std::erase_if(tokens, [](const Token& t) { return t.is("const"); });
  if (tokens.empty()) return out;
  const bool introduced = tokens.size() == 2 && (tokens[0].is("typename") || tokens[0].is("class"));
  const bool named =
      introduced || (tokens.size() > 1 && is_name(tokens.back()) && !tokens[tokens.size() - 2].is("::") &&
                     !listed(tokens.back().text, kTypeWords));
  if (named) out.name = tokens.back().text;
  const bool type = (tokens[0].is("typename") || tokens[0].is("class")) && tokens.size() <= 2;
  if (tokens[0].is("template")) {
    out.kind = TemplateParameter::Kind::template_template;
  } else {
    out.kind = type ? TemplateParameter::Kind::type : TemplateParameter::Kind::value;
    if (!type) out.type = joined(tokens, tokens[0].is("typename") ? 1 : 0, tokens.size() - (named ? 1 : 0));
  }
  if (pack) out.kind = TemplateParameter::Kind::pack;
  return out;
}

FunctionParameter function_parameter(Tokens tokens) {
  FunctionParameter out;
  out.declared = joined(tokens);
  out.fallback = take_fallback(tokens);
  Tokens kept;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool attribute = tokens[i].is("[") && i + 1 < tokens.size() && tokens[i + 1].is("[");
    if (attribute) i = after_bracket(tokens, i, tokens.size()) - 1;
    if (tokens[i].is(".")) out.pack = true;
    if (!attribute && !tokens[i].is(".") && !listed(tokens[i].text, kDropped)) kept.push_back(tokens[i]);
  }
  const auto words =
      std::count_if(kept.begin(), kept.end(), [](const Token& t) { return is_name(t) && !t.is("const"); });
  for (std::size_t i = 0; i + 2 < kept.size(); ++i) {  // void (*f)(int)
    if (!kept[i].is("(") || !kept[i + 1].is("*") || !is_name(kept[i + 2])) continue;
    out.name = kept[i + 2].text;
    out.type = "void*";
    return out;
  }
  bool array = false;
  while (!kept.empty() && kept.back().is("]")) {
    while (!kept.empty() && !kept.back().is("[")) kept.pop_back();
    if (!kept.empty()) kept.pop_back();
    array = true;
  }
  const bool qualified = kept.size() > 1 && kept[kept.size() - 2].is("::");
  if (words > 1 && is_name(kept.back()) && !kept.back().is("const") && !qualified &&
      !listed(kept.back().text, kTypeWords)) {
    out.name = kept.back().text;
    kept.pop_back();
  }
  out.type = joined(kept) + (array ? "*" : "");
  return out;
}

/// Finds the lines of places in one text. Places are asked for in ascending order, mostly.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text), at_(text.data()) {}
  int of(std::string_view place) {
    if (place.data() < at_) *this = Lines(text_);
    line_ += static_cast<int>(std::count(at_, place.data(), '\n'));
    at_ = place.data();
    return line_;
  }

 private:
  std::string_view text_;
  const char* at_;
  int line_ = 1;
};

/// Macros, each with the words of all its definitions.
class MacroWords {
 public:
  void add(const std::vector<source::MacroDefinition>& macros) {
    for (const auto& macro : macros)
      words_[macro.name].insert(words_[macro.name].end(), macro.words.begin(), macro.words.end());
  }
  bool says_global(std::string_view word, std::size_t depth = 0) const {
    if (word == "__global__") return true;
    const auto found = depth < kMostMacroDepth ? words_.find(word) : words_.end();
    return found != words_.end() && std::any_of(found->second.begin(), found->second.end(),
                                                [&](auto inner) { return says_global(inner, depth + 1); });
  }

 private:
  std::map<std::string_view, std::vector<std::string_view>> words_;
};

class KernelReader {
 public:
  KernelReader(std::string_view text, Lines& lines, const Declaration& declaration, const Macros& define)
      : text_(text.substr(declaration.begin, declaration.end - declaration.begin)),
        tokens_(source::tokens_of(text_)),
        lines_(lines),
        declaration_(declaration),
        define_(define) {}

  /// False for a specialisation, and for text that is no function after all.
  bool read(KernelDeclaration& out) {
    std::size_t at = 0;
    while (at + 1 < tokens_.size() && tokens_[at].is("template") && tokens_[at + 1].is("<")) {
      const std::size_t end = after_bracket(tokens_, at + 1, tokens_.size());
      if (end == at + 3) return false;  // template <>
      out.is_template = true;
      for (Tokens& piece : pieces(tokens_, at + 2, end - 1))
        out.parameters.push_back(template_parameter(std::move(piece)));
      at = end;
    }
    const std::size_t name = find_name(at);
    if (name == tokens_.size() || !tokens_[name + 1].is("(")) return false;
    for (std::size_t i = at; i < name; ++i) attribute(out, i);
    out.scope = declaration_.scope;
    std::string qualifier;  // of a kernel that is defined outside of its namespace
    for (std::size_t i = name; i >= 2 && tokens_[i - 1].is("::") && is_name(tokens_[i - 2]); i -= 2)
      qualifier = std::string(tokens_[i - 2].text) + (qualifier.empty() ? "" : "::") + qualifier;
    if (!qualifier.empty()) out.scope += (out.scope.empty() ? "" : "::") + qualifier;
    out.name = text_of(tokens_[name].text);
    out.line = lines_.of(tokens_[name].text);
    const std::size_t end = after_bracket(tokens_, name + 1, tokens_.size());
    const bool none = end == name + 4 && tokens_[name + 2].is("void");
    if (!none)
      for (Tokens& piece : pieces(tokens_, name + 2, end - 1))
        out.arguments.push_back(function_parameter(std::move(piece)));
    for (std::size_t i = end; i < tokens_.size() && !tokens_[i].is("{"); ++i) attribute(out, i);
    out.defined = declaration_.body;
    body(out, end);
    return true;
  }

 private:
  /// A macro of the command line may be the name.
  std::string text_of(std::string_view word) const {
    for (const auto& [name, text] : define_)
      if (name == word && base::is_identifier(text)) return text;
    return std::string(word);
  }
  std::size_t find_name(std::size_t at) const {
    const auto& names = declaration_.names;
    for (; at + 1 < tokens_.size(); ++at)
      if (std::find(names.begin(), names.end(), tokens_[at].text) != names.end() &&
          (tokens_[at + 1].is("(") || tokens_[at + 1].is("<")))
        return at;
    return tokens_.size();
  }
  void attribute(KernelDeclaration& out, std::size_t i) const {
    const bool bounds = tokens_[i].is("__launch_bounds__"), cluster = tokens_[i].is("__cluster_dims__");
    if ((!bounds && !cluster) || i + 1 >= tokens_.size() || !tokens_[i + 1].is("(")) return;
    (bounds ? out.bounds : out.cluster) =
        pieces(tokens_, i + 2, after_bracket(tokens_, i + 1, tokens_.size()) - 1);
  }
  void body(KernelDeclaration& out, std::size_t from) const {
    const auto has = [&](std::string_view what) { return text_.find(what) != std::string_view::npos; };
    out.grid_sync = has("this_grid") || has("grid_group");
    out.dependent_launch = has("griddepcontrol") || has("cudaGridDependencySynchronize");
    for (std::size_t i = 0; i + 2 < tokens_.size(); ++i) {
      if (i >= from && tokens_[i].is("extern") &&
          (tokens_[i + 1].is("__shared__") || tokens_[i + 2].is("__shared__")))
        out.dynamic_shared = true;
      if (is_name(tokens_[i]) && tokens_[i + 1].is("::") && is_name(tokens_[i + 2]))
        out.members[std::string(tokens_[i].text)].insert(std::string(tokens_[i + 2].text));
      if (is_name(tokens_[i]) && tokens_[i + 1].is("(")) out.called.insert(std::string(tokens_[i].text));
    }
  }

  const std::string_view text_;
  const Tokens tokens_;
  Lines& lines_;
  const Declaration& declaration_;
  const Macros& define_;
};

/// Words that mean the same at every place of a program.
constexpr std::array<std::string_view, 27> kGlobalWords = {
    "true",    "false",  "float",   "double",  "int",           "unsigned",    "signed",
    "long",    "short",  "char",    "bool",    "half",          "__half",      "half2",
    "nullptr", "void",   "const",   "size_t",  "__nv_bfloat16", "nv_bfloat16", "std",
    "sizeof",  "int8_t", "uint8_t", "int32_t", "uint32_t",      "int64_t"};

}  // namespace

std::string joined(const Tokens& tokens, std::size_t begin, std::size_t end) {
  std::string out;
  for (std::size_t i = begin; i < end; ++i) {
    const auto wordlike = [](const Token& t) {
      return t.kind == Token::Kind::word || t.kind == Token::Kind::literal;
    };
    const bool space =
        i > begin &&
        (tokens[i - 1].is(",") ||
         (wordlike(tokens[i]) && (wordlike(tokens[i - 1]) || tokens[i - 1].is("*") || tokens[i - 1].is("&") ||
                                  tokens[i - 1].is(">") || tokens[i - 1].is("."))));
    if (space) out += ' ';
    out += tokens[i].text;
  }
  return out;
}

std::string KernelDeclaration::text() const {
  std::vector<std::string> list, taken;
  for (const TemplateParameter& p : parameters) list.push_back(p.declared);
  for (const FunctionParameter& a : arguments) taken.push_back(a.declared);
  return qualified() + (is_template ? '<' + base::join(list, ", ") + '>' : "") + '(' +
         base::join(taken, ", ") + ')';
}

void SourceTexts::add(const std::string& path, std::string text) {
  Text& added = texts_.emplace_back();
  added.path = path;
  added.text = std::move(text);
  added.tokens = source::tokens_of(added.text);
  for (const auto& macro : source::macros_of(added.tokens))
    if (macro.braces) brace_macros_.insert(macro.name);
  added.declarations = source::outline_of(added.text, added.tokens, brace_macros_);
}

std::vector<KernelDeclaration> SourceTexts::kernels(const Macros& define) const {
  MacroWords macros;
  std::string defined;
  for (const auto& [name, text] : define) defined += "#define " + name + ' ' + text + '\n';
  const Tokens of_define = source::tokens_of(defined);
  macros.add(source::macros_of(of_define));
  for (const Text& text : texts_) macros.add(source::macros_of(text.tokens));
  std::vector<KernelDeclaration> out;
  for (const Text& text : texts_) {
    Lines lines(text.text);
    for (const Declaration& d : text.declarations) {
      const bool kernel = std::any_of(d.specifiers.begin(), d.specifiers.end(),
                                      [&](std::string_view word) { return macros.says_global(word); });
      if (!kernel || d.kind != DeclarationKind::function) continue;
      KernelDeclaration read;
      if (!KernelReader(text.text, lines, d, define).read(read)) continue;
      read.path = text.path;
      const auto same = std::find_if(out.begin(), out.end(), [&](const KernelDeclaration& other) {
        return other.qualified() == read.qualified() && other.arguments.size() == read.arguments.size() &&
               std::equal(other.arguments.begin(), other.arguments.end(), read.arguments.begin(),
                          [](const auto& a, const auto& b) { return a.type == b.type; });
      });
      if (same == out.end())
        out.push_back(std::move(read));
      else if (!same->defined && read.defined)
        *same = std::move(read);
    }
  }
  return out;
}

std::vector<std::pair<std::string_view, const Tokens*>> SourceTexts::tokens() const {
  std::vector<std::pair<std::string_view, const Tokens*>> out;
  for (const Text& text : texts_) out.emplace_back(text.path, &text.tokens);
  return out;
}

std::map<std::string, EnumDeclaration> SourceTexts::enums() const {
  std::map<std::string, EnumDeclaration> out;
  for (const Text& text : texts_) {
    for (const Declaration& d : text.declarations) {
      if (d.kind != DeclarationKind::named) continue;
      const Tokens tokens = source::tokens_of(std::string_view(text.text).substr(d.begin, d.end - d.begin));
      std::size_t at = 0;
      while (at < tokens.size() && !tokens[at].is("enum") && !tokens[at].is("{")) ++at;
      if (at >= tokens.size() || !tokens[at].is("enum")) continue;
      const bool scoped =
          at + 1 < tokens.size() && (tokens[at + 1].is("class") || tokens[at + 1].is("struct"));
      at += scoped ? 2 : 1;
      if (at >= tokens.size() || !is_name(tokens[at])) continue;
      const std::string name(tokens[at].text), scope = d.scope.empty() ? "" : d.scope + "::";
      EnumDeclaration& added = out[name];
      added = {scope + name, {}};
      while (at < tokens.size() && !tokens[at].is("{")) ++at;
      if (at == tokens.size()) continue;
      for (const Tokens& piece : pieces(tokens, at + 1, after_bracket(tokens, at, tokens.size()) - 1))
        if (is_name(piece[0])) added.values.emplace_back(piece[0].text);
    }
  }
  return out;
}

std::vector<Evidence> SourceTexts::instantiations(const KernelDeclaration& kernel) const {
  std::map<std::string_view, std::set<std::string>>
      scopes;  // of each name that is declared outside of functions
  for (const Text& text : texts_)
    for (const Declaration& d : text.declarations) {
      for (const std::string_view name : d.names) scopes[name].insert(d.scope);
      for (std::size_t at = 0, colon; at < d.scope.size(); at = colon + 2) {
        colon = std::min(d.scope.find("::", at), d.scope.size());
        scopes[std::string_view(d.scope).substr(at, colon - at)].insert(
            d.scope.substr(0, at > 1 ? at - 2 : 0));
      }
    }
  // The scope in which a name at the launch is found: the kernel's, or one around it.
  const auto scope_of = [&](const std::set<std::string>& of_name) {
    std::string best = *of_name.begin();
    for (const std::string& scope : of_name)
      if (scope.empty() || (kernel.scope + "::").starts_with(scope + "::")) best = scope;
    return best;
  };
  // Empty when a word is declared nowhere outside of functions.
  const auto text_of = [&](const Tokens& piece) {
    std::string out;
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const Token& t = piece[i];
      const bool free_name =
          is_name(t) && (i == 0 || !piece[i - 1].is("::")) && !listed(t.text, kGlobalWords);
      const auto found = scopes.find(t.text);
      if (free_name && found == scopes.end()) return std::string();
      const std::string scope = free_name ? scope_of(found->second) : std::string();
      const bool space = i > 0 && is_name(t) && (is_name(piece[i - 1]) || piece[i - 1].is(","));
      out += (space ? " " : "") + (scope.empty() ? "" : scope + "::") + std::string(t.text);
    }
    return out;
  };
  std::vector<Evidence> out;
  for (const Text& text : texts_) {
    Lines lines(text.text);
    for (std::size_t i = 0; i + 2 < text.tokens.size(); ++i) {
      if (!text.tokens[i].is(kernel.name) || !text.tokens[i + 1].is("<") || text.tokens[i + 2].is("<"))
        continue;
      const std::size_t end = after_bracket(text.tokens, i + 1, text.tokens.size());
      Evidence found;
      found.place =
          text.path.substr(text.path.rfind('/') + 1) + ':' + std::to_string(lines.of(text.tokens[i].text));
      for (const Tokens& piece : pieces(text.tokens, i + 2, end - 1)) found.values.push_back(text_of(piece));
      if (found.values.size() <= kernel.parameters.size() && !found.values.empty())
        out.push_back(std::move(found));
    }
  }
  // The places that say most come first.
  std::stable_sort(out.begin(), out.end(), [](const Evidence& a, const Evidence& b) {
    const auto known = [](const Evidence& e) {
      return std::count_if(e.values.begin(), e.values.end(), [](const std::string& v) { return !v.empty(); });
    };
    return known(a) > known(b);
  });
  return out;
}

std::vector<const KernelDeclaration*> kernels_named(const std::vector<KernelDeclaration>& kernels,
                                                    std::string_view wanted) {
  const bool whole = wanted.starts_with("::");
  if (whole) wanted.remove_prefix(2);
  std::vector<const KernelDeclaration*> out;
  for (const KernelDeclaration& kernel : kernels) {
    const std::string name = kernel.qualified();
    const bool ends = name.ends_with(wanted) && !wanted.empty();
    const std::size_t before = name.size() - wanted.size();
    if (name == wanted || (ends && !whole && before >= 2 && name.compare(before - 2, 2, "::") == 0))
      out.push_back(&kernel);
  }
  return out;
}

bool is_overloaded(const std::vector<KernelDeclaration>& kernels, const KernelDeclaration& kernel) {
  return std::count_if(kernels.begin(), kernels.end(), [&](const KernelDeclaration& other) {
           return other.qualified() == kernel.qualified();
         }) > 1;
}

}  // namespace kiln::cli
