#include "tools/kiln/import/includes.hpp"

#include <algorithm>

namespace kiln::cli {
namespace {

/// Our knowledge of a condition: a directive's operand is not evaluated in full.
enum class Truth { no, maybe, yes };

Truth negated(Truth t) { return t == Truth::no ? Truth::yes : t == Truth::yes ? Truth::no : Truth::maybe; }

class Conditions {
 public:
  explicit Conditions(const std::set<std::string_view>& defined) : defined_(defined) {}

  /// False when the directives so far leave out what follows.
  bool active() const {
    return std::all_of(open_.begin(), open_.end(), [](const Branch& b) { return b.now != Truth::no; });
  }
  void directive(const source::DirectiveText& d) {
    if (d.name == "ifdef" || d.name == "ifndef") {
      const Tokens words = source::tokens_of(d.rest);
      const Truth t = words.empty() ? Truth::maybe : is_defined(words[0].text);
      open_.push_back({d.name == "ifdef" ? t : negated(t), Truth::no});
      open_.back().before = open_.back().now;
    } else if (d.name == "if") {
      open_.push_back({condition(d.rest), Truth::no});
      open_.back().before = open_.back().now;
    } else if (open_.empty()) {
      return;
    } else if (d.name == "else" || d.name == "elif") {
      Branch& b = open_.back();
      const Truth rest = negated(b.before);
      const Truth own = d.name == "else" ? Truth::yes : condition(d.rest);
      b.now = std::min(rest, own);
      b.before = std::max(b.before, own);
    } else if (d.name == "endif") {
      open_.pop_back();
    }
  }

 private:
  struct Branch {
    Truth now, before;  ///< before: whether an earlier branch was taken
  };
  /// Macros of compilers and toolkits may be defined; a project's own macros are when some text defines them.
  Truth is_defined(std::string_view name) const {
    if (name == "__CUDACC__" || name == "__CUDACC_RTC__" || name == "__CUDA_ARCH__" || name == "__NVCC__" ||
        name == "__cplusplus")
      return Truth::yes;
    const bool toolkit = name.starts_with("__CUDA") || name.starts_with("__NV") || name.starts_with("CUDA") ||
                         name.starts_with("NV") || name.starts_with("__GNU") || name.starts_with("__cpp");
    return defined_.contains(name) || toolkit ? Truth::maybe : Truth::no;
  }
  /// Understands !, && and || over defined(X) and names; everything else counts as maybe.
  Truth condition(std::string_view text) const {
    Truth any = Truth::no;
    std::size_t from = 0;
    if (text.find('(') != text.npos && text.find("defined") == text.npos) return Truth::maybe;
    while (from <= text.size()) {
      const std::size_t end = std::min(text.find("||", from), text.size());
      any = std::max(any, conjunction(text.substr(from, end - from)));
      from = end + 2;
    }
    return any;
  }
  Truth conjunction(std::string_view text) const {
    Truth all = Truth::yes;
    std::size_t from = 0;
    while (from <= text.size()) {
      const std::size_t end = std::min(text.find("&&", from), text.size());
      all = std::min(all, term(text.substr(from, end - from)));
      from = end + 2;
    }
    return all;
  }
  Truth term(std::string_view text) const {
    Tokens words = source::tokens_of(text);
    bool negative = false;
    std::erase_if(words, [](const Token& t) { return t.is("(") || t.is(")"); });
    if (!words.empty() && words[0].is("!")) negative = true, words.erase(words.begin());
    if (words.size() == 2 && words[0].is("defined")) {
      const Truth t = is_defined(words[1].text);
      return negative ? negated(t) : t;
    }
    if (words.size() != 1) return Truth::maybe;
    const Truth t = words[0].is("0") ? Truth::no : words[0].is("1") ? Truth::yes : is_defined(words[0].text);
    const Truth value = t == Truth::yes && !words[0].is("1") ? Truth::maybe : t;
    return negative ? negated(value) : value;
  }

  const std::set<std::string_view>& defined_;
  std::vector<Branch> open_;
};

std::vector<std::string> active_includes(const Tokens& tokens, const std::set<std::string_view>& defined) {
  std::vector<std::string> out;
  Conditions conditions(defined);
  for (const Token& t : tokens) {
    if (t.kind != Token::Kind::directive) continue;
    const source::DirectiveText d = source::directive_text(t.text);
    conditions.directive(d);
    if (d.name != "include" || !conditions.active()) continue;
    const std::size_t open = d.rest.find_first_of("\"<");
    if (open == d.rest.npos) continue;
    const std::size_t close = d.rest.find(d.rest[open] == '<' ? '>' : '"', open + 1);
    if (close != d.rest.npos) out.emplace_back(d.rest.substr(open + 1, close - open - 1));
  }
  return out;
}

}  // namespace

std::set<std::string> included_headers(const std::vector<IncludingText>& texts, const Macros& define) {
  std::set<std::string_view> defined;
  for (const auto& [name, text] : define) defined.insert(name);
  for (const IncludingText& text : texts)
    for (const auto& macro : source::macros_of(*text.second)) defined.insert(macro.name);
  std::set<std::string> out;
  std::vector<std::size_t> waiting{0};
  std::vector<bool> seen(texts.size());
  while (!waiting.empty()) {
    const std::size_t at = waiting.back();
    waiting.pop_back();
    if (at >= texts.size() || seen[at]) continue;
    seen[at] = true;
    for (const std::string& name : active_includes(*texts[at].second, defined)) {
      out.insert(name);
      std::string_view end = name;
      while (end.starts_with("../") || end.starts_with("./")) end.remove_prefix(end.find('/') + 1);
      for (std::size_t i = 0; i < texts.size(); ++i)
        if (texts[i].first.ends_with(end)) waiting.push_back(i);
    }
  }
  return out;
}

}  // namespace kiln::cli
