#include "overlay/cut.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "overlay/macros.hpp"
#include "overlay/outline.hpp"

namespace kiln::source {
namespace {

using WordSet = std::unordered_set<std::string_view>;

/// Names that the language uses without mentioning them: loops over ranges, structured bindings, operators.
constexpr std::array<std::string_view, 7> kImplicit = {"begin",      "end",           "get", "operator",
                                                       "tuple_size", "tuple_element", "swap"};

struct Piece {
  Declaration declaration;
  std::size_t text = 0;
  std::size_t parent = kNoDeclaration;  ///< index of a piece
  Marks marks;
  bool cut_by_name = false, keep_by_name = false;
  bool kept = false;
  bool declared = false;  ///< kept without its body

  bool is_member() const noexcept { return parent != kNoDeclaration; }
};

class Cutter {
 public:
  Cutter(const std::vector<std::string_view>& texts, const CutRules& rules) : texts_(texts) {
    std::vector<std::vector<Token>> tokens;
    for (const std::string_view text : texts) {
      tokens.push_back(tokens_of(text));
      macros_.add(tokens.back());
    }
    const WordSet keep(rules.keep.begin(), rules.keep.end()), cut(rules.cut.begin(), rules.cut.end());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::size_t base = pieces_.size();
      for (Declaration& d : outline_of(texts[i], tokens[i], macros_.scopes())) {
        Piece piece;
        piece.text = i;
        if (d.parent != kNoDeclaration) piece.parent = base + d.parent;
        for (const std::string_view word : d.specifiers) piece.marks |= macros_.marks_of(word);
        if (d.kind == DeclarationKind::function && macros_.declares_kernel(d.names.back()))
          name_as_expanded(d, texts[i]);
        if (d.kind == DeclarationKind::call && macros_.instantiates(tokens[i][d.tokens.begin].text))
          d.kind = DeclarationKind::instantiation;
        for (const std::string_view name : d.names) {
          piece.cut_by_name |= cut.contains(name);
          piece.keep_by_name |= keep.contains(name);
        }
        piece.declaration = std::move(d);
        pieces_.push_back(std::move(piece));
      }
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      for (const std::string_view name : pieces_[i].declaration.names) by_name_[name].push_back(i);
      if (pieces_[i].is_member()) members_[pieces_[i].parent].push_back(i);
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (!is_foreign_specialisation(pieces_[i].declaration)) continue;
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
      if (is_always_kept(pieces_[i])) keep(i);
    }
    while (!waiting_.empty()) {
      const std::string_view word = waiting_.back();
      waiting_.pop_back();
      if (const auto* words = macros_.find(word))
        for (const std::string_view inner : *words) reach(inner);
      for (const auto* index : {&by_name_, &by_type_})
        if (const auto found = index->find(word); found != index->end())
          for (const std::size_t i : found->second) consider(i);
    }
    for (Piece& piece : pieces_) {
      if (piece.declaration.kind == DeclarationKind::check) piece.kept = all_there(piece);
    }
    return result();
  }

 private:
  /// Gives a declaration the names that it has once its macro is expanded: KERNEL(name, int n) { ... }.
  void name_as_expanded(Declaration& declaration, std::string_view text) {
    const std::size_t end = declaration.defined() ? declaration.body_begin : declaration.end;
    const std::string& expanded =
        expanded_.emplace_back(macros_.expanded(text.substr(declaration.begin, end - declaration.begin)));
    std::vector<std::string_view> names;
    for (const Declaration& inner : outline_of(expanded, tokens_of(expanded), macros_.scopes()))
      names.insert(names.end(), inner.names.begin(), inner.names.end());
    if (!names.empty()) declaration.names = std::move(names);
  }
  void reach(std::string_view word) {
    if (reached_.insert(word).second) waiting_.push_back(word);
  }
  bool is_always_kept(const Piece& piece) const {
    if (piece.declaration.kind == DeclarationKind::fixed) return true;
    if (piece.declaration.kind != DeclarationKind::call) return piece.keep_by_name && !piece.is_member();
    Marks marks;
    for (const std::string_view word : piece.declaration.words) {
      if (macros_.find(word)) marks |= macros_.marks_of(word);
    }
    return marks.device || marks.constant || marks.type;
  }
  /// Keeps a declaration whose name was reached. A function that a kernel may not call keeps only its head,
  /// because sizeof and decltype may still name it.
  void consider(std::size_t i) {
    Piece& piece = pieces_[i];
    const Declaration& d = piece.declaration;
    if (piece.kept || (piece.cut_by_name && !piece.keep_by_name)) return;
    if (d.kind == DeclarationKind::instantiation) return;
    if (piece.is_member() && !pieces_[piece.parent].kept) return;  // it is considered again with its class
    const bool callable = d.kind != DeclarationKind::function || piece.marks.device || piece.marks.constant ||
                          piece.keep_by_name;
    if (callable) return keep(i);
    if (piece.declared || d.qualified || (!d.stays_in_class && !is_only_host_code(d))) return;
    if (!d.defined()) return keep(i);
    piece.declared = true;
    for (const std::string_view word : d.head_words) reach(word);
  }
  /// True for a function when no device function has its name. Operators count as if one had.
  bool is_only_host_code(const Declaration& declaration) const {
    for (const std::string_view name : declaration.names) {
      if (name == "operator") return false;
      const auto& same = by_name_.at(name);
      if (std::any_of(same.begin(), same.end(), [&](std::size_t i) { return pieces_[i].marks.device; }))
        return false;
    }
    return true;
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
    for (const std::string_view word : pieces_[i].declaration.words) reach(word);
    const auto found = members_.find(i);
    if (found == members_.end()) return;
    for (const std::size_t member : found->second) {
      const auto& names = pieces_[member].declaration.names;
      if (pieces_[member].declaration.stays_in_class ||
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
        declare(out.texts[piece.text], piece.declaration);
        continue;
      }
      for (const std::string_view name : piece.declaration.names)
        if (!kept_names.contains(name)) out.names.emplace(name);
      blank(out.texts[piece.text], piece.declaration.begin, piece.declaration.end);
    }
    return out;
  }
  /// Puts a ';' in the place of a function's body, and takes __host__ away, which NVRTC refuses.
  void declare(std::string& text, const Declaration& d) const {
    const std::string_view head = std::string_view(text).substr(d.begin, d.body_begin - d.begin);
    std::vector<std::size_t> marks;
    for (const Token& token : tokens_of(head))
      if (token.is("__host__")) marks.push_back(static_cast<std::size_t>(token.text.data() - text.data()));
    blank(text, d.body_begin, d.end);
    text[d.body_begin] = ';';
    for (const std::size_t at : marks) text.replace(at, 8, 8, ' ');
  }
  /// Replaces all characters by blanks, apart from line ends and directives.
  void blank(std::string& text, std::size_t begin, std::size_t end) const {
    const std::string_view original = std::string_view(text).substr(begin, end - begin);
    std::string blanked(original.size(), ' ');
    for (std::size_t i = 0; i < original.size(); ++i)
      if (original[i] == '\n') blanked[i] = '\n';
    for (const Token& token : tokens_of(original)) {
      if (token.kind != Token::Kind::directive || directive_text(token.text).name == "pragma") continue;
      const auto at = static_cast<std::size_t>(token.text.data() - original.data());
      blanked.replace(at, token.text.size(), token.text);
    }
    text.replace(begin, blanked.size(), blanked);
  }

  const std::vector<std::string_view>& texts_;
  Macros macros_;
  std::deque<std::string> expanded_;  ///< texts of calls of macros
  std::vector<Piece> pieces_;
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_name_;
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
