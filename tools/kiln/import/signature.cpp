// One declaration, from its tokens to parameters, arguments and bounds.
#include "tools/kiln/import/signature.hpp"
#include "tools/kiln/import/brackets.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "tools/kiln/import/source.hpp"

namespace kiln::cli {
namespace {

constexpr std::string_view kBounds = "__launch_bounds__", kCluster = "__cluster_dims__";
constexpr std::string_view kAttributes[] = {kBounds,       kCluster,         "__attribute__", "__declspec",
                                            "__maxnreg__", "__block_size__", "alignas",       "requires",
                                            "noexcept",    "decltype"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

Tokens range(const Tokens& tokens, std::size_t begin, std::size_t end) {
  return {tokens.begin() + static_cast<std::ptrdiff_t>(begin),
          tokens.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::vector<std::string> texts(const Tokens& tokens, std::size_t begin, std::size_t end) {
  std::vector<std::string> out;
  for (const TokenRange& one : between_commas(tokens, begin, end))
    out.push_back(joined(tokens, one.begin, one.end));
  return out;
}

/// The '=' of a default, outside brackets; `end` when there is none.
std::size_t find_default(const Tokens& tokens, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end;) {
    if (tokens[i].is("=")) return i;
    if (tokens[i].is("(") || tokens[i].is("[") || tokens[i].is("{"))
      i = behind_bracket(tokens, i, end);
    else
      ++i;
  }
  return end;
}

TemplateParameter read_template_parameter(const Tokens& tokens, TokenRange at) {
  TemplateParameter out;
  out.declared = joined(tokens, at.begin, at.end);
  const std::size_t equals = find_default(tokens, at.begin, at.end);
  if (equals < at.end) out.fallback = range(tokens, equals + 1, at.end);
  Tokens words = range(tokens, at.begin, equals);
  if (words.empty()) return out;
  const bool pack = std::any_of(words.begin(), words.end(), [](const Token& t) { return t.is("..."); });
  const bool named = words.size() > 1 && words.back().is_word() && !words[words.size() - 2].is("::");
  if (words.front().is("template")) {
    out.kind = TemplateParameter::Kind::template_template;
    if (named) out.name = words.back().text;
    return out;
  }
  const bool introduces = words.front().is("typename") || words.front().is("class");
  // Accepts "typename T", but not "typename Traits::value N".
  if (introduces && words.size() <= (pack ? 3u : 2u)) {
    out.kind = pack ? TemplateParameter::Kind::pack : TemplateParameter::Kind::type;
    if (words.back().is_word() && words.size() > 1) out.name = words.back().text;
    return out;
  }
  out.kind = pack ? TemplateParameter::Kind::pack : TemplateParameter::Kind::value;
  constexpr std::array<std::string_view, 9> builtin = {"int",   "bool", "unsigned", "signed", "long",
                                                       "short", "char", "auto",     "size_t"};
  if (named && !contains(builtin, words.back().text)) {
    out.name = words.back().text;
    words.pop_back();
  }
  for (Token& word : words)
    if (!word.is("const") && !word.is("...")) out.type.push_back(std::move(word));
  return out;
}

/// True for a word like "CUTLASS_GRID_CONSTANT", which looks like a macro.
bool looks_like_macro(const std::string& word) {
  return word.size() > 3 && word.find('_') != std::string::npos &&
         std::none_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

class ParameterReader {
 public:
  ParameterReader(const Tokens& tokens, TokenRange at) {
    out_.declared = joined(tokens, at.begin, at.end);
    const std::size_t equals = find_default(tokens, at.begin, at.end);
    if (equals < at.end) out_.fallback = range(tokens, equals + 1, at.end);
    words_ = range(tokens, at.begin, equals);
  }
  FunctionParameter read() {
    drop_attributes();
    drop_macros();
    take_array();
    take_name();
    drop_own_qualifiers();
    out_.type = std::move(words_);
    return std::move(out_);
  }

 private:
  void drop_attributes() {
    Tokens kept;
    for (std::size_t i = 0; i < words_.size();) {
      const std::string& word = words_[i].text;
      const bool brackets = i + 1 < words_.size() && words_[i].is("[") && words_[i + 1].is("[");
      const bool called = i + 1 < words_.size() && words_[i + 1].is("(");
      if (brackets) {
        i = behind_bracket(words_, i, words_.size());
      } else if (words_[i].is_word() && called && (contains(kAttributes, word) || looks_like_macro(word))) {
        i = behind_bracket(words_, i + 1, words_.size());
      } else if (word == "__grid_constant__") {
        out_.grid_constant = true;
        ++i;
      } else if (word == "...") {
        out_.pack = true;
        ++i;
      } else if (word == "__restrict__" || word == "__restrict" || word == "restrict" || word == "volatile" ||
                 word == "register" || word == "struct" || word == "class" || word == "enum" ||
                 word == "typename") {
        ++i;
      } else {
        kept.push_back(words_[i++]);
      }
    }
    words_ = std::move(kept);
  }
  /// Drops words that look like macros when a type and a name remain.
  void drop_macros() {
    const auto names = [&] {
      return std::count_if(words_.begin(), words_.end(),
                           [](const Token& t) { return t.is_word() && !t.is("const"); });
    };
    for (std::size_t i = 0; i + 1 < words_.size() && names() > 2;) {
      if (words_[i].is_word() && looks_like_macro(words_[i].text) && words_[i + 1].is_word())
        words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
  }
  /// "float x[4]" declares a pointer.
  void take_array() {
    const auto open = std::find_if(words_.begin(), words_.end(), [](const Token& t) { return t.is("["); });
    if (open == words_.end()) return;
    std::size_t at = static_cast<std::size_t>(open - words_.begin());
    words_.resize(at);
    const bool named = at > 1 && words_.back().is_word();
    Token star;
    star.text = "*";
    words_.insert(named ? words_.end() - 1 : words_.end(), star);
  }
  void take_name() {
    // "void (*call)(int)" declares a pointer to a function.
    for (std::size_t i = 0; i + 2 < words_.size(); ++i) {
      if (!words_[i].is("(") || !(words_[i + 1].is("*") || words_[i + 1].is("&"))) continue;
      if (words_[i + 2].is_word()) out_.name = words_[i + 2].text;
      words_.resize(i);
      words_.push_back({Token::Kind::punctuation, "(", 0});
      words_.push_back({Token::Kind::punctuation, "*", 0});
      words_.push_back({Token::Kind::punctuation, ")", 0});
      return;
    }
    constexpr std::array<std::string_view, 11> builtin = {
        "int", "bool", "unsigned", "signed", "long", "short", "char", "float", "double", "void", "const"};
    if (words_.size() < 2 || !words_.back().is_word() || contains(builtin, words_.back().text)) return;
    const Token& before = words_[words_.size() - 2];
    if (before.is("::")) return;
    const bool only_const =
        std::all_of(words_.begin(), words_.end() - 1, [](const Token& t) { return t.is("const"); });
    if (only_const) return;  // "const Params" without a name
    out_.name = words_.back().text;
    words_.pop_back();
  }
  /// Drops "const" of a value or of the pointer itself, but not of the pointed-to type.
  void drop_own_qualifiers() {
    while (words_.size() > 1 && words_.back().is("const")) words_.pop_back();
    const bool pointer = std::any_of(words_.begin(), words_.end(), [](const Token& t) { return t.is("*"); });
    if (!pointer && !words_.empty() && words_.front().is("const") && words_.size() > 1)
      words_.erase(words_.begin());
  }

  Tokens words_;
  FunctionParameter out_;
};

struct Header {
  std::size_t open = 0, close = 0;  ///< index of "<", and index after ">"; equal: no template header
  bool instantiation = false;
};

/// Finds the last template header before `global`.
Header find_header(const Tokens& tokens, std::size_t begin, std::size_t global) {
  Header out;
  for (std::size_t i = begin; i < global;) {
    if (!tokens[i].is("template")) {
      ++i;
      continue;
    }
    if (i + 1 >= global || !tokens[i + 1].is("<")) {
      out.instantiation = true;
      return out;
    }
    out.open = i + 1;
    out.close = behind_angle(tokens, i + 1, global);
    i = std::max(out.close, i + 2);
  }
  return out;
}

std::size_t find_global(const Tokens& tokens, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i)
    if (tokens[i].is("__global__")) return i;
  return end;
}

}  // namespace

bool read_declaration(const Tokens& tokens, std::size_t begin, std::size_t end, KernelDeclaration& out) {
  const std::size_t global = find_global(tokens, begin, end);
  if (global == end) return false;
  const Header header = find_header(tokens, begin, global);
  if (header.instantiation) return false;
  std::optional<std::size_t> name;  // index of the last name before a parameter list that is no attribute's
  for (std::size_t i = header.close; i + 1 < end;) {
    const Token& t = tokens[i];
    if (t.is("requires") && i > global) break;
    if (t.is_word() && tokens[i + 1].is("(")) {
      const std::size_t behind = behind_bracket(tokens, i + 1, end);
      if (t.is(kBounds)) out.bounds = texts(tokens, i + 2, behind - 1);
      if (t.is(kCluster)) out.cluster = texts(tokens, i + 2, behind - 1);
      if (i > global && !contains(kAttributes, t.text)) name = i;
      i = behind;
    } else if (t.is("(") || t.is("[")) {
      i = behind_bracket(tokens, i, end);
    } else if (t.is("<")) {
      i = std::max(behind_angle(tokens, i, end), i + 1);
    } else {
      ++i;
    }
  }
  if (!name) return false;
  out.is_template = header.close > header.open;
  if (out.is_template) {
    if (header.close == header.open + 2) return false;  // "template <>" specialises another template
    for (const TokenRange& one : between_commas(tokens, header.open + 1, header.close - 1))
      out.parameters.push_back(read_template_parameter(tokens, one));
  }
  out.name = tokens[*name].text;
  out.line = tokens[*name].line;
  for (std::size_t i = *name; i >= begin + 2 && tokens[i - 1].is("::") && tokens[i - 2].is_word(); i -= 2)
    out.scope.insert(out.scope.begin(), tokens[i - 2].text);
  const std::size_t behind = behind_bracket(tokens, *name + 1, end);
  if (!tokens[behind - 1].is(")")) return false;
  for (const TokenRange& one : between_commas(tokens, *name + 2, behind - 1)) {
    FunctionParameter argument = ParameterReader(tokens, one).read();
    const bool nothing = argument.type.empty() || (argument.type.size() == 1 && argument.type[0].is("void"));
    if (!nothing) out.arguments.push_back(std::move(argument));
  }
  return true;
}

}  // namespace kiln::cli
