#include "tools/kiln/import/conditions.hpp"

#include <algorithm>

namespace kiln::cli {

/// Reads !, &&, ||, parentheses, defined(X), names, 0 and 1. Everything else is maybe true.
class Conditions::Reader {
 public:
  Reader(const Conditions& conditions, std::string_view text)
      : conditions_(conditions), tokens_(source::tokens_of(text)) {}

  Truth run() {
    const Truth out = any();
    return at_ == tokens_.size() ? out : Truth::maybe;
  }

 private:
  static constexpr int kMostTerms = 1000;
  Truth any() {
    Truth out = all();
    while (take("|", "|")) out = std::max(out, all());
    return out;
  }
  bool is(std::size_t at, std::string_view text) const { return at < tokens_.size() && tokens_[at].is(text); }
  bool take(std::string_view first, std::string_view second = {}) {
    if (!is(at_, first) || (!second.empty() && !is(at_ + 1, second))) return false;
    at_ += second.empty() ? 1 : 2;
    return true;
  }
  Truth all() {
    Truth out = one();
    while (take("&", "&")) out = std::min(out, one());
    return out;
  }
  Truth one() {
    if (++terms_ > kMostTerms) return Truth::maybe;
    if (take("!")) return inverted(one());
    Truth out = Truth::maybe;
    if (take("(")) {
      out = any();
      if (!take(")")) return Truth::maybe;
    } else if (take("defined")) {
      const bool parenthesis = take("(");
      if (at_ < tokens_.size()) out = conditions_.is_defined(tokens_[at_++].text);
      if (parenthesis) take(")");
    } else if (at_ < tokens_.size()) {
      const source::Token& t = tokens_[at_++];
      if (t.is("0") || t.is("1")) out = t.is("1") ? Truth::yes : Truth::no;
      if (t.is_word()) out = conditions_.value_of(t.text);
    }
    const std::size_t end = at_;
    while (at_ < tokens_.size() && !is(at_, ")") && !(is(at_, "&") && is(at_ + 1, "&")) &&
           !(is(at_, "|") && is(at_ + 1, "|")))
      ++at_;
    return at_ == end ? out : Truth::maybe;  // a comparison, a call
  }

  const Conditions& conditions_;
  const std::vector<source::Token> tokens_;
  std::size_t at_ = 0;
  int terms_ = 0;
};

Conditions::Truth Conditions::inverted(Truth t) {
  return t == Truth::maybe ? t : t == Truth::yes ? Truth::no : Truth::yes;
}

/// Macros of compilers and toolkits may be defined. A project's own macros are when a text defined them.
Conditions::Truth Conditions::is_defined(std::string_view name) const {
  for (const std::string_view known :
       {"__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__NVCC__", "__cplusplus"})
    if (name == known) return Truth::yes;
  for (const std::string_view prefix : {"__CUDA", "__NV", "CUDA", "NV", "__GNU", "__cpp"})
    if (name.starts_with(prefix)) return Truth::maybe;
  return defined_.contains(name) ? Truth::maybe : Truth::no;
}

/// A macro that is not defined counts as 0.
Conditions::Truth Conditions::value_of(std::string_view name) const {
  const auto found = defined_.find(name);
  return found == defined_.end() ? std::min(is_defined(name), Truth::maybe) : found->second;
}

void Conditions::define(std::string_view name, std::string_view value) {
  const Truth truth = value == "0" ? Truth::no : value == "1" ? Truth::yes : Truth::maybe;
  const auto [known, fresh] = defined_.try_emplace(name, truth);
  if (!fresh && known->second != truth) known->second = Truth::maybe;
}

Conditions::Truth Conditions::condition(std::string_view text) const { return Reader(*this, text).run(); }

Conditions::Truth Conditions::now() const {
  Truth out = Truth::yes;
  for (const Branch& branch : open_) out = std::min(out, branch.now);
  return out;
}

void Conditions::directive(const source::DirectiveText& directive) {
  const std::vector<source::Token> words = source::tokens_of(directive.rest);
  const std::string_view first = words.empty() ? std::string_view() : words[0].text;
  if (directive.name == "ifdef" || directive.name == "ifndef" || directive.name == "if") {
    const Truth t = directive.name == "if" ? condition(directive.rest) : is_defined(first);
    const Truth now = directive.name == "ifndef" ? inverted(t) : t;
    open_.push_back({now, now});
  } else if (directive.name == "define" && active()) {
    define(first, words.size() == 2 ? words[1].text : std::string_view());
  } else if (open_.empty()) {
    return;
  } else if (directive.name == "else" || directive.name == "elif") {
    Branch& branch = open_.back();
    const Truth own = directive.name == "else" ? Truth::yes : condition(directive.rest);
    branch.now = std::min(inverted(branch.before), own);
    branch.before = std::max(branch.before, own);
  } else if (directive.name == "endif") {
    open_.pop_back();
  }
}

}  // namespace kiln::cli
