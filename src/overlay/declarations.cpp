#include "overlay/declarations.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "overlay/head.hpp"
#include "overlay/outline.hpp"

namespace kiln::source {
namespace {

/// Macros of libraries that make host code, or mark a host function.
constexpr std::array<std::string_view, 14> kHostMacros = {"PYBIND11_MODULE",
                                                          "TORCH_LIBRARY",
                                                          "TORCH_LIBRARY_FRAGMENT",
                                                          "TORCH_LIBRARY_IMPL",
                                                          "NB_MODULE",
                                                          "TORCH_API",
                                                          "C10_API",
                                                          "TORCH_CUDA_CPP_API",
                                                          "TORCH_CUDA_CU_API",
                                                          "C10_EXPORT",
                                                          "CUDART_CB",
                                                          "CUDARTAPI",
                                                          "CUBLASAPI",
                                                          "STABLE_TORCH_LIBRARY_IMPL"};

bool is_host_macro(std::string_view word) {
  return std::find(kHostMacros.begin(), kHostMacros.end(), word) != kHostMacros.end();
}
bool has_lasting_pragma(const TokenView& view, TokenRange range, const Macros& macros) {
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const std::string_view word = view[i].text;
    const bool pragma = word == "_Pragma" || word == "__pragma";
    if (pragma ? is_lasting_pragma(view[i + 2].text)
               : view[i].is_word() && macros.has_lasting_pragma(word, view[i + 2].text))
      return true;
  }
  return false;
}
/// True when a macro stands where a function has its name: struct A { } ALIGN(16);
bool has_macro_name(const Piece& piece, const Macros& macros) {
  const auto& names = piece.declaration.names;
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return macros.find(name); });
}
/// True for a parameter of the template that the tokens declare.
bool is_parameter(std::string_view head, std::string_view word) {
  const std::vector<Token> tokens = tokens_of(head);
  const TokenView view(tokens);
  for (std::size_t t = 1; t < view.size(); ++t) {
    const Token& before = view[t - 1];
    if (view[t].is(word) && before.is_word() && !before.is("const") && !view[t + 1].is("::")) return true;
  }
  return false;
}
/// `keep` and `cut` are names of the rules.
void note_rules(Piece& piece, const WordSet& keep, const WordSet& cut) {
  const Declaration& d = piece.declaration;
  const auto counts = [&](const WordSet& listed) {
    return std::count_if(d.names.begin(), d.names.end(), [&](auto name) { return listed.contains(name); });
  };
  const auto names = static_cast<std::ptrdiff_t>(d.names.size());
  piece.keep_by_name = counts(keep) > 0;
  piece.cut_by_name =
      counts(cut) >= (d.kind == DeclarationKind::call ? std::max<std::ptrdiff_t>(names, 1) : 1);
}

template <class Map, class Key>
std::span<const std::size_t> pieces_in(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? std::span<const std::size_t>() : found->second;
}

}  // namespace

Declarations::Declarations(const std::vector<std::string_view>& texts, const CutRules& rules)
    : rules_(rules) {
  std::vector<std::vector<Token>> tokens;
  tokens.reserve(texts.size());
  for (const std::string_view text : texts) {
    tokens.push_back(tokens_of(text));
    macros_.add(tokens.back());
  }
  namespaces_ = Namespaces(tokens, macros_);
  for (std::size_t i = 0; i < texts.size(); ++i) read(i, texts[i], tokens[i]);
  const WordSet keep(rules.keep.begin(), rules.keep.end()), cut(rules.cut.begin(), rules.cut.end());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    note_rules(pieces_[i], keep, cut);
    for (const std::string_view name : pieces_[i].declaration.names) by_name_[name].push_back(i);
    if (pieces_[i].is_member()) members_[pieces_[i].parent].push_back(i);
  }
  for (Piece& piece : pieces_) judge(piece);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    inherit(i);
    note_bounds(i);
  }
  included_ = find_included(pieces_, tokens, rules.paths);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (!is_foreign_specialisation(pieces_[i].declaration) || pieces_[i].inherits) continue;
    for (const std::string_view word : types_of(pieces_[i].declaration)) by_type_[word].push_back(i);
  }
}

std::vector<std::string_view> Declarations::names() const {
  std::vector<std::string_view> out;
  for (const auto& [name, pieces] : by_name_) out.push_back(name);
  return out;
}
std::span<const std::size_t> Declarations::of_name(std::string_view name) const {
  return pieces_in(by_name_, name);
}
std::span<const std::size_t> Declarations::of_type(std::string_view word) const {
  return pieces_in(by_type_, word);
}
std::span<const std::size_t> Declarations::members_of(std::size_t piece) const {
  return pieces_in(members_, piece);
}
const Declarations::Functions* Declarations::functions(std::string_view name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : &found->second;
}

/// Appends the pieces of a text.
void Declarations::read(std::size_t text, std::string_view source, const std::vector<Token>& tokens) {
  const std::size_t base = pieces_.size();
  for (Declaration& d : outline_of(source, tokens, macros_)) {
    Piece piece;
    piece.text = text;
    piece.head = source.substr(d.begin, (d.defined() ? d.body_begin : d.end) - d.begin);
    if (d.parent != kNoDeclaration) piece.parent = base + d.parent;
    for (const std::string_view word : d.specifiers) piece.marks |= macros_.marks_of(word);
    if (d.kind == DeclarationKind::call && macros_.instantiates(tokens[d.tokens.begin].text))
      d.kind = DeclarationKind::instantiation;
    const MadeDeclarations::Made made = made_.read(d, source, tokens);
    piece.whole = made.whole;
    piece.lasting = has_lasting_pragma(TokenView(tokens), d.tokens, macros_);
    piece.marks |= made.marks;
    if (d.kind == DeclarationKind::instantiation)
      for (const std::string_view word : d.words) piece.marks.bounds |= macros_.marks_of(word).bounds;
    piece.declaration = std::move(d);
    pieces_.push_back(std::move(piece));
  }
}

/// Says whether a piece is certainly a host function, and counts it among the functions of its names.
void Declarations::judge(Piece& piece) {
  const Declaration& d = piece.declaration;
  piece.host = d.kind == DeclarationKind::function && d.paired && !d.includes && !piece.marks.device &&
               !piece.marks.constant && !piece.lasting && !has_macro_name(piece, macros_) &&
               !(!rules_.unused && has_unknown_macro(piece));
  const bool is_template_or_class = !d.qualified && !piece.is_specialisation();
  for (const std::string_view name : d.names)
    functions_[name].add(piece.marks, piece.host && is_template_or_class);
  for (const MemberDeclaration& member : d.members) {
    functions_[member.name].add(member.marks, !member.marks.device);
    if (member.marks.is_friend && member.marks.device) ++functions_[member.name].undefined;
  }
  if (d.kind == DeclarationKind::function && !piece.is_member() && piece.marks.device)
    functions_[d.names.back()].undefined += d.defined() ? -1 : 1;
}

/// Gives a specialisation, and a member that is defined outside of its class, the execution space of the other
/// declarations of its name. It is a host function only when they all are. Another function without marks is for
/// the device when a declaration says so that has no definition.
void Declarations::inherit(std::size_t i) {
  Piece& piece = pieces_[i];
  const Declaration& d = piece.declaration;
  if (!piece.host || (d.names.back() == "operator" && piece.has_stream())) return;
  const Functions& same = functions_.at(d.names.back());
  if (!piece.is_specialisation() && !d.qualified) {
    const bool declared = same.undefined > 0 && !same.kernel && d.names.back() != "operator";
    const bool here = d.defined() && !piece.is_member();
    if (declared && here && !names_unknown_namespace(piece)) piece.host = false;
    return;
  }
  bool device = piece.is_specialisation() && same.device, host = piece.is_specialisation() && same.host;
  piece.marks.global = piece.is_specialisation() && same.kernel && !device;
  if (!piece.is_specialisation()) {
    for (const std::string_view type : types_in_head(piece))
      for (const std::size_t of_type : by_name_.at(type))
        for (const MemberDeclaration& member : pieces_[of_type].declaration.members)
          if (member.name == d.names.back()) (member.marks.device ? device : host) = true;
    const bool known = device || host;
    device = known ? device : same.undefined > 0 && !same.kernel;
    host = known ? host : same.host;
  }
  piece.marks.device = device || piece.marks.global;
  piece.host = host && !piece.marks.device;
  piece.inherits = !piece.host;
  if (piece.host && !d.qualified) return;
  by_type_["operator"].push_back(i);
  for (const std::string_view type : types_in_head(piece)) by_type_[type].push_back(i);
}

/// Explicit instantiations of the kernel may have its launch bounds.
void Declarations::note_bounds(std::size_t i) {
  const Piece& piece = pieces_[i];
  if (piece.declaration.kind != DeclarationKind::instantiation || !piece.marks.bounds) return;
  std::size_t kernels = 0;
  const auto note = [&](std::string_view word) {
    const auto found = functions_.find(word);
    if (found == functions_.end() || !found->second.kernel) return;
    by_type_[word].push_back(i);
    ++kernels;
  };
  for (const std::string_view word : piece.declaration.words) {
    note(word);
    if (const auto* words = macros_.find(word)) std::for_each(words->begin(), words->end(), note);
  }
  if (kernels == 0)
    by_type_["operator"].push_back(i);  // the name is joined by ##, or stands deeper in macros
}

std::vector<std::string_view> Declarations::types_in_head(const Piece& piece) const {
  std::vector<std::string_view> out;
  for (const std::string_view word : piece.declaration.specifiers) {
    const auto same = by_name_.find(word);
    if (same == by_name_.end()) continue;
    if (std::any_of(same->second.begin(), same->second.end(),
                    [&](std::size_t i) { return pieces_[i].declaration.type; }))
      out.push_back(word);
  }
  return out;
}

bool Declarations::is_root(const Piece& piece) const {
  const Declaration& d = piece.declaration;
  if (piece.is_member()) return false;
  if (d.kind == DeclarationKind::fixed || !d.paired || d.includes || included_.contains[piece.text])
    return true;
  if (piece.whole || piece.lasting || piece.keep_by_name) return true;
  if (d.kind == DeclarationKind::call && made_.makes_device_code(d.words)) return true;
  if (rules_.unused || piece.cut_by_name) return false;
  switch (d.kind) {
    case DeclarationKind::function:
      return !piece.host && !piece.marks.global && !piece.inherits;
    case DeclarationKind::named:
      return d.specialisation || d.guide || (!d.type && (piece.marks.device || piece.marks.constant));
    case DeclarationKind::call: {
      const std::string_view macro = d.words.empty() ? std::string_view() : d.words[0];
      return !macros_.find(macro) && !is_host_macro(macro);
    }
    case DeclarationKind::check:
      return true;
    default:
      return false;
  }
}

/// True when the head of a function has a word that may be a macro of a header that is not here: the macro may
/// stand for __device__.
bool Declarations::has_unknown_macro(const Piece& piece) const {
  const Declaration& d = piece.declaration;
  return std::any_of(d.specifiers.begin(), d.specifiers.end(), [&](std::string_view word) {
    if (!is_macro_like(word) || macros_.find(word) || is_host_macro(word)) return false;
    const auto same = by_name_.find(word);
    const bool declared =
        same != by_name_.end() &&
        (!contains(d.names, word) || std::any_of(same->second.begin(), same->second.end(),
                                                 [&](std::size_t k) { return pieces_[k].declaration.type; }));
    return !declared && !is_parameter(piece.head, word);
  });
}

bool Declarations::names_unknown_namespace(const Piece& piece) const {
  return namespaces_.are_unknown_in(piece.head, piece.declaration.scope);
}

/// A specialisation of a template that these texts do not declare. A header that is not here may use it, and
/// would take the general template without an error.
bool Declarations::is_foreign_specialisation(const Declaration& declaration) const {
  if (!declaration.specialisation) return false;
  return std::all_of(declaration.names.begin(), declaration.names.end(), [&](std::string_view name) {
    const auto& same = by_name_.at(name);
    return std::all_of(same.begin(), same.end(),
                       [&](std::size_t i) { return pieces_[i].declaration.specialisation; });
  });
}

/// The words that keep a foreign specialisation: types of these texts among its template arguments, or all
/// words when there are none. A specialisation for all types is kept with "operator", which is always reached.
std::vector<std::string_view> Declarations::types_of(const Declaration& declaration) const {
  std::vector<std::string_view> out;
  for (const std::string_view word : declaration.arguments)
    if (by_name_.contains(word)) out.push_back(word);
  if (out.empty()) out = declaration.arguments;
  if (out.empty()) out.push_back("operator");
  return out;
}

}  // namespace kiln::source
