#include "overlay/cut.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "overlay/head.hpp"
#include "overlay/macros.hpp"
#include "overlay/made.hpp"
#include "overlay/outline.hpp"

namespace kiln::source {
namespace {

using WordSet = std::unordered_set<std::string_view>;

/// Names that the language uses without mentioning them: loops over ranges, structured bindings, operators.
constexpr std::array<std::string_view, 8> kImplicit = {"begin",      "end",           "get",  "operator",
                                                       "tuple_size", "tuple_element", "swap", "~"};

/// Namespaces of headers that the cut does not read: of the toolkit, and kiln's shims and stubs.
constexpr std::array<std::string_view, 16> kLibraries = {
    "std", "cuda",   "cub", "thrust", "cooperative_groups", "nvcuda", "nv", "nvstd", "torch", "kiln", "c10",
    "at",  "caffe2", "rmm", "nvtx3",  "headeronly"};

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

bool is_library(std::string_view word) {
  return std::find(kLibraries.begin(), kLibraries.end(), word) != kLibraries.end();
}
bool is_host_macro(std::string_view word) {
  return std::find(kHostMacros.begin(), kHostMacros.end(), word) != kHostMacros.end();
}

struct Piece {
  Declaration declaration;
  std::size_t text = 0;
  std::size_t parent = kNoDeclaration;  ///< index of a piece
  Marks marks;
  bool cut_by_name = false, keep_by_name = false;
  bool whole = false;    ///< a macro in it may make a declaration that no word names
  bool lasting = false;  ///< a pragma in it may change the text after it
  bool host = false;     ///< a function that is certainly for the host
  /// True for a function that has the execution space of another declaration: of its template, or of its class.
  bool inherits = false;
  bool kept = false;
  bool declared = false;  ///< kept without its body

  bool is_member() const noexcept { return parent != kNoDeclaration; }
};

class Cutter {
 public:
  Cutter(const std::vector<std::string_view>& texts, const CutRules& rules) : texts_(texts), rules_(rules) {
    std::vector<std::vector<Token>> tokens;
    tokens.reserve(texts.size());
    for (const std::string_view text : texts) {
      tokens.push_back(tokens_of(text));
      macros_.add(tokens.back());
      note_names(tokens.back());
    }
    const WordSet keep(rules.keep.begin(), rules.keep.end()), cut(rules.cut.begin(), rules.cut.end());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::size_t base = pieces_.size();
      for (Declaration& d : outline_of(texts[i], tokens[i], macros_)) {
        Piece piece;
        piece.text = i;
        if (d.parent != kNoDeclaration) piece.parent = base + d.parent;
        for (const std::string_view word : d.specifiers) piece.marks |= macros_.marks_of(word);
        if (d.kind == DeclarationKind::call && macros_.instantiates(tokens[i][d.tokens.begin].text))
          d.kind = DeclarationKind::instantiation;
        const MadeDeclarations::Made made = made_.read(d, texts[i], tokens[i]);
        piece.whole = made.whole;
        piece.lasting = has_lasting_pragma(TokenView(tokens[i]), d.tokens);
        piece.marks |= made.marks;
        if (d.kind == DeclarationKind::instantiation)
          for (const std::string_view word : d.words) piece.marks.bounds |= macros_.marks_of(word).bounds;
        const auto counts = [&](const WordSet& listed) {
          return std::count_if(d.names.begin(), d.names.end(),
                               [&](auto name) { return listed.contains(name); });
        };
        const auto names = static_cast<std::ptrdiff_t>(d.names.size());
        piece.keep_by_name = counts(keep) > 0;
        piece.cut_by_name =
            counts(cut) >= (d.kind == DeclarationKind::call ? std::max<std::ptrdiff_t>(names, 1) : 1);
        piece.declaration = std::move(d);
        pieces_.push_back(std::move(piece));
      }
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      for (const std::string_view name : pieces_[i].declaration.names) by_name_[name].push_back(i);
      if (pieces_[i].is_member()) members_[pieces_[i].parent].push_back(i);
    }
    for (Piece& piece : pieces_) {
      const Declaration& d = piece.declaration;
      piece.host = d.kind == DeclarationKind::function && d.paired && !d.includes && !piece.marks.device &&
                   !piece.marks.constant && !piece.lasting && !has_macro_name(piece) &&
                   !(!rules.unused && has_unknown_macro(piece));
      const bool is_template_or_class = !d.qualified && !is_specialisation(piece);
      for (const std::string_view name : d.names)
        functions_[name].add(piece.marks, piece.host && is_template_or_class);
      for (const MemberDeclaration& member : d.members) {
        functions_[member.name].add(member.marks, !member.marks.device);
        if (member.marks.is_friend && member.marks.device) ++functions_[member.name].undefined;
      }
      if (d.kind == DeclarationKind::function && !piece.is_member() && piece.marks.device)
        functions_[d.names.back()].undefined += d.defined() ? -1 : 1;
    }
    for (const std::string_view word : namespaces_) unsure_ = unsure_ || macros_.find(word);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      inherit(i);
      note_bounds(i);
    }
    find_included(tokens);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (!is_foreign_specialisation(pieces_[i].declaration) || pieces_[i].inherits) continue;
      for (const std::string_view word : types_of(pieces_[i].declaration)) by_type_[word].push_back(i);
    }
    for (const std::string& root : rules.roots) {
      for (const Token& token : tokens_of(root)) reach(token.text);
    }
    for (const std::string& name : rules.keep) reach(name);
    for (const std::string_view name : kImplicit) reach(name);
  }

  CutTexts run() {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (!is_root(pieces_[i])) continue;
      if (pieces_[i].whole && pieces_[i].declaration.kind == DeclarationKind::function)
        consider(i);
      else
        keep(i);
    }
    while (!waiting_.empty() || reach_joined_names() || reach_operators()) {
      if (waiting_.empty()) continue;
      const std::string_view word = waiting_.back();
      waiting_.pop_back();
      joined_ = std::max(joined_, macros_.joined(word));
      if (const auto* words = macros_.find(word))
        for (const std::string_view inner : *words) reach(inner);
      for (const auto* index : {&by_name_, &by_type_})
        if (const auto found = index->find(word); found != index->end())
          for (const std::size_t i : found->second) consider(i);
    }
    for (Piece& piece : pieces_) {
      if (piece.declaration.kind == DeclarationKind::check && !piece.kept) piece.kept = all_there(piece);
    }
    return result();
  }

 private:
  /// Notes the words that may be names of namespaces or types: they stand somewhere without a `::` after them.
  void note_names(const std::vector<Token>& tokens) {
    const TokenView view(tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool in_namespace = i > 0 && view[i - 1].is("namespace");
      const bool directive = in_namespace && i > 1 && view[i - 2].is("using");
      if (view[i].kind == Token::Kind::directive) {
        const DirectiveText d = directive_text(view[i].text);
        if (!d.name.starts_with("include")) note_names(tokens_of(d.rest));
      } else if (directive) {
        unsure_ = unsure_ || is_library(view[i].text);
      } else if (in_namespace || !view[i + 1].is("::")) {
        names_.insert(view[i].text);
        if (in_namespace) namespaces_.insert(view[i].text);
      }
    }
  }
  bool has_lasting_pragma(const TokenView& view, TokenRange range) const {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const std::string_view word = view[i].text;
      const bool pragma = word == "_Pragma" || word == "__pragma";
      if (pragma ? is_lasting_pragma(view[i + 2].text)
                 : view[i].is_word() && macros_.has_lasting_pragma(word, view[i + 2].text))
        return true;
    }
    return false;
  }
  static bool is_specialisation(const Piece& piece) {
    return piece.declaration.kind == DeclarationKind::function &&
           (piece.declaration.specialisation || piece.marks.specialises);
  }
  /// Gives a specialisation, and a member that is defined outside of its class, the execution space of the other
  /// declarations of its name. It is a host function only when they all are. Another function without marks is for
  /// the device when a declaration says so that has no definition.
  void inherit(std::size_t i) {
    Piece& piece = pieces_[i];
    const Declaration& d = piece.declaration;
    if (!piece.host || (d.names.back() == "operator" && has_stream(piece))) return;
    const Functions& same = functions_.at(d.names.back());
    if (!is_specialisation(piece) && !d.qualified) {
      const bool declared = same.undefined > 0 && !same.kernel && d.names.back() != "operator";
      const bool here = d.defined() && !piece.is_member();
      if (declared && here && !names_unknown_namespace(piece)) piece.host = false;
      return;
    }
    bool device = is_specialisation(piece) && same.device, host = is_specialisation(piece) && same.host;
    piece.marks.global = is_specialisation(piece) && same.kernel && !device;
    if (!is_specialisation(piece)) {
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
  void note_bounds(std::size_t i) {
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
  /// True when all words that a function with an inherited execution space needs are reached.
  bool is_asked_for(const Piece& piece) const {
    const Functions& same = functions_.at(piece.declaration.names.back());
    const bool foreign = !same.kernel && !same.device && !same.host;
    const auto types = types_in_head(piece);
    return (foreign || reached_.contains(piece.declaration.names.back())) &&
           std::all_of(types.begin(), types.end(), [&](auto type) { return reached_.contains(type); });
  }
  /// The classes of these texts in the head of a function: its own, the one of its result, template arguments.
  std::vector<std::string_view> types_in_head(const Piece& piece) const {
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
  void reach(std::string_view word) {
    if (reached_.insert(word).second) waiting_.push_back(word);
  }
  /// Reaches the names that ## may have made. A name that ## makes consists of words that are reached and of
  /// numbers. True when there were new ones.
  bool reach_joined_names() {
    if (joined_ == 0) return false;
    const std::size_t before = reached_.size();
    for (const auto& [name, pieces] : by_name_)
      if (!reached_.contains(name) && can_be_joined(name)) reach(name);
    for (const std::string_view name : macros_.names())
      if (!reached_.contains(name) && can_be_joined(name)) reach(name);
    return reached_.size() > before;
  }
  /// True when a name is made of reached words and numbers, at most two more than one macro joins: calls nest.
  bool can_be_joined(std::string_view name) const {
    constexpr std::size_t kLongest = 128;
    if (name.size() > kLongest) return true;
    const std::size_t most = joined_ + 2;
    std::vector<std::size_t> parts(name.size() + 1, most + 1);  // the fewest words up to a place
    parts[0] = 0;
    for (std::size_t from = 0; from < name.size(); ++from) {
      if (parts[from] >= most) continue;
      bool number = name[from] >= '0' && name[from] <= '9';
      for (std::size_t to = from + 1; to <= name.size(); ++to) {
        number = number && name[to - 1] != '_';
        if (number || reached_.contains(name.substr(from, to - from)))
          parts[to] = std::min(parts[to], parts[from] + 1);
      }
    }
    return parts[name.size()] <= most;
  }
  /// True for what stays although no text may mention it.
  bool is_root(const Piece& piece) const {
    const Declaration& d = piece.declaration;
    if (piece.is_member()) return false;
    if (d.kind == DeclarationKind::fixed || !d.paired || d.includes || included_[piece.text]) return true;
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
  /// True when a macro stands where a function has its name: struct A { } ALIGN(16);
  bool has_macro_name(const Piece& piece) const {
    const auto& names = piece.declaration.names;
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return macros_.find(name); });
  }
  /// True when the head of a function has a word that may be a macro of a header that is not here: the macro may
  /// stand for __device__.
  bool has_unknown_macro(const Piece& piece) const {
    const Declaration& d = piece.declaration;
    return std::any_of(d.specifiers.begin(), d.specifiers.end(), [&](std::string_view word) {
      if (!is_macro_like(word) || macros_.find(word) || is_host_macro(word)) return false;
      const bool declared = by_name_.contains(word) && !contains(d.names, word);
      return !declared && !is_parameter(head_of(piece), word);
    });
  }
  std::string_view head_of(const Piece& piece) const {
    const Declaration& d = piece.declaration;
    return texts_[piece.text].substr(d.begin, (d.defined() ? d.body_begin : d.end) - d.begin);
  }

  /// Marks the texts that an #include inside of a declaration brings, directly or through others. Their words belong
  /// to that declaration, so they stay whole.
  void find_included(const std::vector<std::vector<Token>>& tokens) {
    included_.assign(texts_.size(), false);
    std::vector<std::size_t> from(
        texts_.size());  // the first token whose #include may stand in a declaration
    for (std::size_t i = 0; i < texts_.size(); ++i) from[i] = tokens[i].size();
    for (const Piece& piece : pieces_) {
      const TokenRange range = piece.declaration.tokens;
      if (!piece.declaration.paired) from[piece.text] = std::min(from[piece.text], range.begin);
      if (!piece.declaration.includes) continue;
      for (std::size_t t = range.begin; t < range.end; ++t) include(tokens[piece.text][t], tokens);
    }
    for (std::size_t i = 0; i < texts_.size(); ++i)
      for (std::size_t t = from[i]; t < tokens[i].size(); ++t) include(tokens[i][t], tokens);
  }
  void include(const Token& token, const std::vector<std::vector<Token>>& tokens) {
    if (token.kind != Token::Kind::directive) return;
    const DirectiveText d = directive_text(token.text);
    if (!d.name.starts_with("include")) return;
    const std::size_t open = d.rest.find_first_of("\"<");
    // The name of the file is all that is compared, and a computed one may be any file.
    const std::string_view path = open == d.rest.npos ? std::string_view() : d.rest.substr(open + 1);
    const std::string_view name = path.substr(path.substr(0, path.find_first_of("\">")).rfind('/') + 1);
    const std::string_view file = name.substr(0, name.find_first_of("\">"));
    for (std::size_t i = 0; i < texts_.size() && i < rules_.paths.size(); ++i) {
      const std::string_view known = rules_.paths[i];
      if (included_[i] || known.empty()) continue;
      if (!file.empty() && known.substr(known.rfind('/') + 1) != file) continue;
      included_[i] = true;
      for (const std::string_view word : TokenView(tokens[i]).words(0, tokens[i].size())) reach(word);
      for (const Token& inner : tokens[i]) include(inner, tokens);
    }
  }

  /// Keeps a declaration whose name was reached. A function that a kernel may not call keeps only its head,
  /// because sizeof and decltype may still name it.
  void consider(std::size_t i) {
    Piece& piece = pieces_[i];
    const Declaration& d = piece.declaration;
    if (piece.kept || (piece.cut_by_name && !piece.keep_by_name)) return;
    if (d.kind == DeclarationKind::instantiation && !piece.marks.bounds) return;
    if (piece.is_member() && !pieces_[piece.parent].kept) return;  // it is considered again with its class
    if (piece.inherits && !piece.keep_by_name && !is_asked_for(piece)) return;
    if (!piece.host || piece.keep_by_name) return keep(i);
    if (piece.whole && d.qualified) return keep(i);
    if (piece.declared) return;
    if (d.qualified ? !is_dispatched(piece) || !is_asked_for(piece)
                    : !d.stays_in_class && !piece.whole && !may_be_chosen(piece))
      return;
    declare(i);
  }
  /// Only a body tells the type of auto, and a class needs all of its virtual functions.
  void declare(std::size_t i) {
    Piece& piece = pieces_[i];
    if (!piece.declaration.defined() || piece.marks.placeholder) return keep(i);
    piece.declared = true;
    mention(piece.declaration, piece.declaration.head_words);
  }
  /// True for a virtual function with a body. An explicit __host__ counts as a body of one character.
  bool has_empty_body(const Piece& piece) const {
    return is_dispatched(piece) && piece.declaration.end - piece.declaration.body_begin > 1;
  }
  bool is_dispatched(const Piece& piece) const {
    return (piece.is_member() || piece.declaration.qualified) &&
           functions_.at(piece.declaration.names.back()).dispatched;
  }
  /// Reaches the words of a declaration. A host function with the name of a kernel counts once another declaration
  /// mentions the name.
  void mention(const Declaration& d, const std::vector<std::string_view>& words) {
    for (const std::string_view word : words) {
      reach(word);
      const auto found = functions_.find(word);
      if (found == functions_.end() || !found->second.kernel || contains(d.names, word)) continue;
      if (!std::exchange(found->second.mentioned, true)) waiting_.push_back(word);
    }
  }
  /// True for a host function that sizeof or decltype may choose. nvcc refuses every other use of it in device
  /// code. No use of a kernel's name is one.
  bool may_be_chosen(const Piece& piece) const {
    const auto& names = piece.declaration.names;
    if (!piece.is_member() && names_unknown_namespace(piece)) return false;
    return std::none_of(names.begin(), names.end(), [&](std::string_view name) {
      const Functions& same = functions_.at(name);
      return name == "operator" || (same.kernel && !same.device && !same.mentioned && !piece.is_member());
    });
  }
  /// Keeps the heads of host operators that sizeof and decltype may choose: no text mentions an operator by name,
  /// but its parameters are of types that are kept. True when there are new ones.
  bool reach_operators() {
    if (rules_.unused) return false;
    bool more = false;
    const auto found = by_name_.find("operator");
    if (found == by_name_.end()) return false;
    for (const std::size_t i : found->second) {
      const Piece& piece = pieces_[i];
      if (!piece.host || piece.is_member() || piece.kept || piece.declared || piece.cut_by_name) continue;
      if (!has_kept_operand(piece) || names_unknown_namespace(piece)) continue;
      declare(i);
      more = true;
    }
    return more;
  }
  /// True for a function of streams, which device code does not have.
  static bool has_stream(const Piece& piece) {
    const Declaration& d = piece.declaration;
    const auto& words = d.defined() ? d.head_words : d.words;
    return contains(words, "ostream") || contains(words, "istream");
  }
  bool has_kept_operand(const Piece& piece) const {
    const Declaration& d = piece.declaration;
    if (has_stream(piece)) return false;
    const std::vector<std::string_view>& words = d.defined() ? d.head_words : d.words;
    bool own = false, kept = false;
    for (const std::string_view word : words) {
      if (word == "operator" || !by_name_.contains(word)) continue;
      own = true;
      kept = kept || reached_.contains(word);
    }
    return kept || !own;
  }
  /// True when the head of a function has LIB::NAME, and LIB is certainly no namespace or type: every text has it
  /// only with `::` after it, and it is in no library that kiln knows. No compiler could read the head.
  bool names_unknown_namespace(const Piece& piece) const {
    const std::string& scope = piece.declaration.scope;
    if (unsure_ || is_library(scope.substr(0, scope.find("::")))) return false;
    const std::vector<Token> tokens = tokens_of(head_of(piece));
    const TokenView view(tokens);
    for (std::size_t t = 0; t < view.size(); ++t) {
      if (!view[t].is_word() || !view[t + 1].is("::") || (t > 0 && view[t - 1].is("::"))) continue;
      if (!names_.contains(view[t].text) && !is_library(view[t].text)) return true;
    }
    return false;
  }
  /// True for a parameter of the template that the tokens declare.
  static bool is_parameter(std::string_view head, std::string_view word) {
    const std::vector<Token> tokens = tokens_of(head);
    const TokenView view(tokens);
    for (std::size_t t = 1; t < view.size(); ++t) {
      const Token& before = view[t - 1];
      if (view[t].is(word) && before.is_word() && !before.is("const") && !view[t + 1].is("::")) return true;
    }
    return false;
  }
  /// A specialisation of a template that these texts do not declare. A header that is not here may use it, and
  /// would take the general template without an error.
  bool is_foreign_specialisation(const Declaration& declaration) const {
    if (!declaration.specialisation) return false;
    return std::all_of(declaration.names.begin(), declaration.names.end(), [&](std::string_view name) {
      const auto& same = by_name_.at(name);
      return std::all_of(same.begin(), same.end(),
                         [&](std::size_t i) { return pieces_[i].declaration.specialisation; });
    });
  }
  /// The words that keep a foreign specialisation: types of these texts among its template arguments, or all
  /// words when there are none. A specialisation for all types is kept with "operator", which is always reached.
  std::vector<std::string_view> types_of(const Declaration& declaration) const {
    std::vector<std::string_view> out;
    for (const std::string_view word : declaration.arguments)
      if (by_name_.contains(word)) out.push_back(word);
    if (out.empty()) out = declaration.arguments;
    if (out.empty()) out.push_back("operator");
    return out;
  }
  void keep(std::size_t i) {
    if (pieces_[i].kept) return;
    pieces_[i].kept = true;
    mention(pieces_[i].declaration, pieces_[i].declaration.words);
    const auto found = members_.find(i);
    if (found == members_.end()) return;
    for (const std::size_t member : found->second) {
      const auto& names = pieces_[member].declaration.names;
      if (pieces_[member].declaration.stays_in_class || (!rules_.unused && !pieces_[member].host) ||
          std::any_of(names.begin(), names.end(), [&](auto name) { return reached_.contains(name); }))
        consider(member);
    }
  }
  /// True when every name of these texts that the declaration mentions is kept.
  bool all_there(const Piece& piece) const {
    const auto& words = piece.declaration.words;
    return std::all_of(words.begin(), words.end(), [&](std::string_view word) {
      const auto found = by_name_.find(word);
      return found == by_name_.end() || std::any_of(found->second.begin(), found->second.end(),
                                                    [&](std::size_t i) { return pieces_[i].kept; });
    });
  }
  CutTexts result() {
    CutTexts out;
    for (const std::string_view text : texts_) out.texts.emplace_back(text);
    WordSet kept_names;
    for (const Piece& piece : pieces_) {
      if (!piece.kept && !piece.declared) continue;
      kept_names.insert(piece.declaration.names.begin(), piece.declaration.names.end());
      out.unmarked |= piece.declaration.kind == DeclarationKind::function && !piece.marks.device;
    }
    for (const Piece& piece : pieces_) {
      if (piece.kept) continue;
      if (piece.declared) {
        declare(out.texts[piece.text], piece.declaration, has_empty_body(piece) ? "{}" : ";");
        continue;
      }
      for (const std::string_view name : piece.declaration.names)
        if (!kept_names.contains(name)) out.names.emplace(name);
      blank(out.texts[piece.text], piece.declaration.begin, piece.declaration.end);
    }
    return out;
  }
  /// Puts `end` in the place of a function's body, and takes __host__ away, which NVRTC refuses.
  void declare(std::string& text, const Declaration& d, std::string_view end) const {
    const std::string_view head = std::string_view(text).substr(d.begin, d.body_begin - d.begin);
    std::vector<std::size_t> marks;
    for (const Token& token : tokens_of(head))
      if (token.is("__host__")) marks.push_back(static_cast<std::size_t>(token.text.data() - text.data()));
    blank(text, d.body_begin, d.end);
    text.replace(d.body_begin, end.size(), end);
    for (const std::size_t at : marks) text.replace(at, 8, 8, ' ');
  }
  /// Replaces all characters by blanks, apart from line ends and directives.
  void blank(std::string& text, std::size_t begin, std::size_t end) const {
    const std::string_view original = std::string_view(text).substr(begin, end - begin);
    std::string blanked(original.size(), ' ');
    for (std::size_t i = 0; i < original.size(); ++i)
      if (original[i] == '\n') blanked[i] = '\n';
    for (const Token& token : tokens_of(original)) {
      if (token.kind != Token::Kind::directive) continue;
      const DirectiveText d = directive_text(token.text);
      if (d.name == "pragma" && is_statement_pragma(d.rest)) continue;
      const auto at = static_cast<std::size_t>(token.text.data() - original.data());
      blanked.replace(at, token.text.size(), token.text);
    }
    text.replace(begin, blanked.size(), blanked);
  }

  /// The kinds of functions of one name.
  struct Functions {
    bool kernel = false, device = false;  ///< one of them is a kernel; one is a device function
    bool host = false;        ///< a template, a class or a free function says that one is for the host
    bool dispatched = false;  ///< one of them is virtual
    bool mentioned = false;   ///< of a kernel: another declaration mentions it
    int undefined = 0;        ///< declarations of device functions, less their definitions

    void add(const Marks& marks, bool is_host) {
      kernel = kernel || marks.global;
      device = device || (marks.device && !marks.global);
      host = host || is_host;
      dispatched = dispatched || marks.dispatched;
    }
  };
  const std::vector<std::string_view>& texts_;
  const CutRules& rules_;
  std::vector<bool> included_;  ///< texts that stand inside of a declaration
  Macros macros_;
  MadeDeclarations made_{macros_};
  WordSet names_;           ///< words that may be names of namespaces or types
  WordSet namespaces_;      ///< words after `namespace`
  bool unsure_ = false;     ///< namespaces may be here that no text names: a macro's, or those in a library
  std::size_t joined_ = 0;  ///< the most words that ## of a reached macro joins
  std::vector<Piece> pieces_;
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_name_;
  std::unordered_map<std::string_view, Functions> functions_;
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_type_;  ///< of foreign specialisations
  std::unordered_map<std::size_t, std::vector<std::size_t>> members_;
  WordSet reached_;
  std::vector<std::string_view> waiting_;
};

}  // namespace

CutTexts cut_host_code(const std::vector<std::string_view>& texts, const CutRules& rules) {
  return Cutter(texts, rules).run();
}

}  // namespace kiln::source
