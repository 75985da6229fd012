#include "overlay/cut.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "overlay/blank.hpp"
#include "overlay/declarations.hpp"
#include "overlay/head.hpp"
#include "overlay/tokens.hpp"

namespace kiln::source {
namespace {

/// Names that the language uses without mentioning them: loops over ranges, structured bindings, operators.
constexpr std::array<std::string_view, 8> kImplicit = {"begin",      "end",           "get",  "operator",
                                                       "tuple_size", "tuple_element", "swap", "~"};

/// Marks what stays of the declarations: from the roots on, each word of a kept declaration may keep others.
class Cutter {
 public:
  Cutter(const std::vector<std::string_view>& texts, const CutRules& rules)
      : texts_(texts),
        rules_(rules),
        declarations_(texts, rules),
        pieces_(declarations_.pieces()),
        stays_(pieces_.size(), Part::none) {
    for (const std::string_view word : declarations_.included_words()) reach(word);
    for (const std::string& root : rules.roots) {
      for (const Token& token : tokens_of(root)) reach(token.text);
    }
    for (const std::string& name : rules.keep) reach(name);
    for (const std::string_view name : kImplicit) reach(name);
  }

  CutTexts run() {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (!declarations_.is_root(pieces_[i])) continue;
      if (pieces_[i].whole && pieces_[i].declaration.kind == DeclarationKind::function)
        consider(i);
      else
        keep(i);
    }
    while (!waiting_.empty() || reach_joined_names() || reach_operators()) {
      if (waiting_.empty()) continue;
      const std::string_view word = waiting_.back();
      waiting_.pop_back();
      joined_ = std::max(joined_, declarations_.macros().joined(word));
      if (const auto* words = declarations_.macros().find(word))
        for (const std::string_view inner : *words) reach(inner);
      for (const std::size_t i : declarations_.of_name(word)) consider(i);
      for (const std::size_t i : declarations_.of_type(word)) consider(i);
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].declaration.kind == DeclarationKind::check && !is_kept(i) && all_there(pieces_[i]))
        stays_[i] = Part::all;
    }
    return result();
  }

 private:
  /// The part of a piece that stays.
  enum class Part : std::uint8_t { none, head, all };

  bool is_kept(std::size_t i) const { return stays_[i] == Part::all; }
  const Declarations::Functions& functions_of(const Piece& piece) const {
    return *declarations_.functions(piece.declaration.names.back());
  }
  /// True when all words that a function with an inherited execution space needs are reached.
  bool is_asked_for(const Piece& piece) const {
    const Declarations::Functions& same = functions_of(piece);
    const bool foreign = !same.kernel && !same.device && !same.host;
    const auto types = declarations_.types_in_head(piece);
    return (foreign || reached_.contains(piece.declaration.names.back())) &&
           std::all_of(types.begin(), types.end(), [&](auto type) { return reached_.contains(type); });
  }
  void reach(std::string_view word) {
    if (reached_.insert(word).second) waiting_.push_back(word);
  }
  /// Reaches the names that ## may have made. A name that ## makes consists of words that are reached and of
  /// numbers. True when there were new ones.
  bool reach_joined_names() {
    if (joined_ == 0) return false;
    const std::size_t before = reached_.size();
    for (const std::string_view name : declarations_.names())
      if (!reached_.contains(name) && can_be_joined(name)) reach(name);
    for (const std::string_view name : declarations_.macros().names())
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
  /// Keeps a declaration whose name was reached. A function that a kernel may not call keeps only its head,
  /// because sizeof and decltype may still name it.
  void consider(std::size_t i) {
    const Piece& piece = pieces_[i];
    const Declaration& d = piece.declaration;
    if (is_kept(i) || (piece.cut_by_name && !piece.keep_by_name)) return;
    if (d.kind == DeclarationKind::instantiation && !piece.marks.bounds) return;
    if (piece.is_member() && !is_kept(piece.parent)) return;  // it is considered again with its class
    if (piece.inherits && !piece.keep_by_name && !is_asked_for(piece)) return;
    if (!piece.host || piece.keep_by_name) return keep(i);
    if (piece.whole && d.qualified) return keep(i);
    if (stays_[i] == Part::head) return;
    if (d.qualified ? !is_dispatched(piece) || !is_asked_for(piece)
                    : !d.stays_in_class && !piece.whole && !may_be_chosen(piece))
      return;
    declare(i);
  }
  /// Only a body tells the type of auto, and a class needs all of its virtual functions.
  void declare(std::size_t i) {
    const Piece& piece = pieces_[i];
    if (!piece.declaration.defined() || piece.marks.placeholder) return keep(i);
    stays_[i] = Part::head;
    mention(piece.declaration, piece.declaration.head_words);
  }
  /// True for a virtual function with a body. An explicit __host__ counts as a body of one character.
  bool has_empty_body(const Piece& piece) const {
    return is_dispatched(piece) && piece.declaration.end - piece.declaration.body_begin > 1;
  }
  bool is_dispatched(const Piece& piece) const {
    return (piece.is_member() || piece.declaration.qualified) && functions_of(piece).dispatched;
  }
  /// Reaches the words of a declaration. A host function with the name of a kernel counts once another declaration
  /// mentions the name.
  void mention(const Declaration& d, const std::vector<std::string_view>& words) {
    for (const std::string_view word : words) {
      reach(word);
      const Declarations::Functions* const found = declarations_.functions(word);
      if (!found || !found->kernel || contains(d.names, word)) continue;
      if (mentioned_.insert(word).second) waiting_.push_back(word);
    }
  }
  /// True for a host function that sizeof or decltype may choose. nvcc refuses every other use of it in device
  /// code. No use of a kernel's name is one.
  bool may_be_chosen(const Piece& piece) const {
    const auto& names = piece.declaration.names;
    if (!piece.is_member() && declarations_.names_unknown_namespace(piece)) return false;
    return std::none_of(names.begin(), names.end(), [&](std::string_view name) {
      const Declarations::Functions& same = *declarations_.functions(name);
      return name == "operator" ||
             (same.kernel && !same.device && !mentioned_.contains(name) && !piece.is_member());
    });
  }
  /// Keeps the heads of host operators that sizeof and decltype may choose: no text mentions an operator by name,
  /// but its parameters are of types that are kept. True when there are new ones.
  bool reach_operators() {
    if (rules_.unused) return false;
    bool more = false;
    for (const std::size_t i : declarations_.of_name("operator")) {
      const Piece& piece = pieces_[i];
      if (!piece.host || piece.is_member() || stays_[i] != Part::none || piece.cut_by_name) continue;
      if (!has_kept_operand(piece) || declarations_.names_unknown_namespace(piece)) continue;
      declare(i);
      more = true;
    }
    return more;
  }
  bool has_kept_operand(const Piece& piece) const {
    const Declaration& d = piece.declaration;
    if (piece.has_stream()) return false;
    const std::vector<std::string_view>& words = d.defined() ? d.head_words : d.words;
    bool own = false, kept = false;
    for (const std::string_view word : words) {
      if (word == "operator" || declarations_.of_name(word).empty()) continue;
      own = true;
      kept = kept || reached_.contains(word);
    }
    return kept || !own;
  }
  void keep(std::size_t i) {
    if (is_kept(i)) return;
    stays_[i] = Part::all;
    mention(pieces_[i].declaration, pieces_[i].declaration.words);
    for (const std::size_t member : declarations_.members_of(i)) {
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
      const std::span<const std::size_t> same = declarations_.of_name(word);
      return same.empty() || std::any_of(same.begin(), same.end(), [&](std::size_t i) { return is_kept(i); });
    });
  }
  CutTexts result() const {
    CutTexts out;
    for (const std::string_view text : texts_) out.texts.emplace_back(text);
    WordSet kept_names;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (stays_[i] == Part::none) continue;
      const Piece& piece = pieces_[i];
      kept_names.insert(piece.declaration.names.begin(), piece.declaration.names.end());
      out.unmarked |= piece.declaration.kind == DeclarationKind::function && !piece.marks.device;
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (is_kept(i)) continue;
      const Piece& piece = pieces_[i];
      if (stays_[i] == Part::head) {
        blank_body(out.texts[piece.text], piece.declaration, has_empty_body(piece) ? "{}" : ";");
        continue;
      }
      for (const std::string_view name : piece.declaration.names)
        if (!kept_names.contains(name)) out.names.emplace(name);
      blank(out.texts[piece.text], piece.declaration.begin, piece.declaration.end);
    }
    return out;
  }

  const std::vector<std::string_view>& texts_;
  const CutRules& rules_;
  const Declarations declarations_;
  const std::vector<Piece>& pieces_;
  std::vector<Part> stays_;  ///< for each piece
  std::size_t joined_ = 0;   ///< the most words that ## of a reached macro joins
  WordSet reached_;
  WordSet mentioned_;  ///< names of kernels that another declaration mentions
  std::vector<std::string_view> waiting_;
};

}  // namespace

CutTexts cut_host_code(const std::vector<std::string_view>& texts, const CutRules& rules) {
  return Cutter(texts, rules).run();
}

}  // namespace kiln::source
