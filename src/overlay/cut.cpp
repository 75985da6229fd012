#include "overlay/cut.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "overlay/outline.hpp"

namespace kiln::source {
namespace {

using WordSet = std::unordered_set<std::string_view>;

/// Names that the language uses without mentioning them: loops over ranges, structured bindings, operators.
constexpr std::array<std::string_view, 7> kImplicit = {"begin",      "end",           "get", "operator",
                                                       "tuple_size", "tuple_element", "swap"};

/// Properties of a function that the words before its name give.
struct Marks {
  bool device = false, constant = false, type = false;
  Marks& operator|=(const Marks& other) {
    device |= other.device, constant |= other.constant, type |= other.type;
    return *this;
  }
};

class Macros {
 public:
  void add(const MacroDefinition& macro) {
    auto& words = words_[macro.name];
    words.insert(words.end(), macro.words.begin(), macro.words.end());
  }
  const std::vector<std::string_view>* find(std::string_view name) const {
    const auto found = words_.find(name);
    return found == words_.end() ? nullptr : &found->second;
  }
  Marks marks_of(std::string_view word, int depth = 0) const {
    if (word == "__device__" || word == "__global__") return {.device = true};
    if (word == "constexpr" || word == "consteval") return {.constant = true};
    if (word == "struct" || word == "class" || word == "using" || word == "enum") return {.type = true};
    Marks out;
    const auto* words = depth < 8 ? find(word) : nullptr;
    if (words) {
      for (const std::string_view inner : *words) out |= marks_of(inner, depth + 1);
    } else if (word.find("DEVICE") != word.npos || word.find("KERNEL") != word.npos ||
               word.find("GLOBAL") != word.npos) {
      out.device = true;  // a macro of a header that is not here
    }
    return out;
  }

 private:
  std::unordered_map<std::string_view, std::vector<std::string_view>> words_;
};

/// A declaration of one of the texts.
struct Node {
  Declaration declaration;
  std::size_t text = 0;
  std::size_t parent = kNoDeclaration;  ///< index of an node
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
    std::set<std::string_view> brace_macros;
    for (const std::string_view text : texts) {
      tokens.push_back(tokens_of(text));
      for (const MacroDefinition& macro : macros_of(tokens.back())) {
        macros_.add(macro);
        if (macro.braces) brace_macros.insert(macro.name);
      }
    }
    const WordSet keep(rules.keep.begin(), rules.keep.end()), cut(rules.cut.begin(), rules.cut.end());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::size_t base = nodes_.size();
      for (Declaration& d : outline_of(texts[i], tokens[i], brace_macros)) {
        Node node;
        node.text = i;
        if (d.parent != kNoDeclaration) node.parent = base + d.parent;
        for (const std::string_view word : d.specifiers) node.marks |= macros_.marks_of(word);
        for (const std::string_view name : d.names) {
          node.cut_by_name |= cut.contains(name);
          node.keep_by_name |= keep.contains(name);
        }
        node.declaration = std::move(d);
        nodes_.push_back(std::move(node));
      }
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const std::string_view name : nodes_[i].declaration.names) by_name_[name].push_back(i);
      if (nodes_[i].is_member()) members_[nodes_[i].parent].push_back(i);
    }
    for (const std::string& root : rules.roots) {
      for (const Token& token : tokens_of(root)) reach(token.text);
    }
    for (const std::string& name : rules.keep) reach(name);
    for (const std::string_view name : kImplicit) reach(name);
  }

  CutTexts run() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (is_always_kept(nodes_[i])) keep(i);
    }
    while (!waiting_.empty()) {
      const std::string_view word = waiting_.back();
      waiting_.pop_back();
      if (const auto* words = macros_.find(word))
        for (const std::string_view inner : *words) reach(inner);
      if (const auto found = by_name_.find(word); found != by_name_.end())
        for (const std::size_t i : found->second) consider(i);
    }
    for (Node& node : nodes_) {
      if (node.declaration.kind == DeclarationKind::check) node.kept = all_there(node);
    }
    return result();
  }

 private:
  void reach(std::string_view word) {
    if (reached_.insert(word).second) waiting_.push_back(word);
  }
  bool is_always_kept(const Node& node) const {
    if (node.declaration.kind == DeclarationKind::fixed) return true;
    if (node.declaration.kind != DeclarationKind::call) return node.keep_by_name;
    Marks marks;
    for (const std::string_view word : node.declaration.words) {
      if (macros_.find(word)) marks |= macros_.marks_of(word);
    }
    return marks.device || marks.constant || marks.type;
  }
  /// Keeps a declaration whose name was reached. A function that a kernel may not call keeps only its head,
  /// because sizeof and decltype may still name it.
  void consider(std::size_t i) {
    Node& node = nodes_[i];
    const Declaration& d = node.declaration;
    if (node.kept || (node.cut_by_name && !node.keep_by_name)) return;
    if (d.kind == DeclarationKind::instantiation) return;
    if (node.is_member() && !nodes_[node.parent].kept) return;  // it is considered again with its class
    const bool callable =
        d.kind != DeclarationKind::function || node.marks.device || node.marks.constant || node.keep_by_name;
    if (callable || d.body == 0) return keep(i);
    if (d.qualified || node.declared) return;  // its class declares it
    node.declared = true;
    for (const std::string_view word : d.head_words) reach(word);
  }
  void keep(std::size_t i) {
    if (nodes_[i].kept) return;
    nodes_[i].kept = true;
    for (const std::string_view word : nodes_[i].declaration.words) reach(word);
    const auto found = members_.find(i);
    if (found == members_.end()) return;
    for (const std::size_t member : found->second) {
      const auto& names = nodes_[member].declaration.names;
      if (std::any_of(names.begin(), names.end(), [&](auto name) { return reached_.contains(name); }))
        consider(member);
    }
  }
  /// True when every name of these texts that the declaration mentions is kept.
  bool all_there(const Node& node) const {
    const auto& words = node.declaration.words;
    return std::all_of(words.begin(), words.end(), [&](std::string_view word) {
      const auto found = by_name_.find(word);
      return found == by_name_.end() || std::any_of(found->second.begin(), found->second.end(),
                                                    [&](std::size_t i) { return nodes_[i].kept; });
    });
  }
  CutTexts result() {
    CutTexts out;
    for (const std::string_view text : texts_) out.texts.emplace_back(text);
    WordSet kept_names;
    for (const Node& node : nodes_) {
      if (!node.kept && !node.declared) continue;
      kept_names.insert(node.declaration.names.begin(), node.declaration.names.end());
      out.unmarked |= node.declaration.kind == DeclarationKind::function && !node.marks.device;
    }
    for (const Node& node : nodes_) {
      if (node.kept) continue;
      if (node.declared) {
        declare(out.texts[node.text], node.declaration);
        continue;
      }
      for (const std::string_view name : node.declaration.names)
        if (!kept_names.contains(name)) out.names.emplace(name);
      blank(out.texts[node.text], node.declaration.begin, node.declaration.end);
    }
    return out;
  }
  /// Puts a ';' in the place of a function's body, and takes __host__ away, which NVRTC refuses.
  void declare(std::string& text, const Declaration& d) const {
    const std::string_view head = std::string_view(text).substr(d.begin, d.body - d.begin);
    std::vector<std::size_t> marks;
    for (const Token& token : tokens_of(head))
      if (token.is("__host__")) marks.push_back(static_cast<std::size_t>(token.text.data() - text.data()));
    blank(text, d.body, d.end);
    text[d.body] = ';';
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
  std::vector<Node> nodes_;
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_name_;
  std::unordered_map<std::size_t, std::vector<std::size_t>> members_;
  WordSet reached_;
  std::vector<std::string_view> waiting_;
};

}  // namespace

CutTexts cut_host_code(const std::vector<std::string_view>& texts, const CutRules& rules) {
  return Cutter(texts, rules).run();
}

}  // namespace kiln::source
