#include "overlay/brackets.hpp"

#include <algorithm>
#include <unordered_set>

namespace kiln::source {

namespace {

/// Tokens of template arguments. Longer ones count as not closed.
constexpr std::size_t kMostArguments = 1024;

const char* end_of(const Token& token) { return token.text.data() + token.text.size(); }

}  // namespace

void Nesting::directive(std::string_view line) {
  const std::string_view name = directive_text(line).name;
  if (name == "if" || name == "ifdef" || name == "ifndef") {
    before_.push_back(depth_);
  } else if (name.starts_with("el") || name == "endif") {
    crosses_ = crosses_ || before_.empty();
    if (name != "endif") depth_ = before_.empty() ? 0 : before_.back();
    if (name == "endif" && !before_.empty()) before_.pop_back();
  }
}

const Token& TokenView::operator[](std::size_t i) const {
  static const Token kEnd{};
  return i < tokens_.size() ? tokens_[i] : kEnd;
}

std::size_t TokenView::after_group(std::size_t i, std::size_t end) const {
  Nesting nesting;
  for (; i < end; ++i) {
    const Token& t = (*this)[i];
    if (t.kind == Token::Kind::directive) nesting.directive(t.text);
    if (t.is("(") || t.is("[") || t.is("{")) nesting.open();
    if (t.is(")") || t.is("]") || t.is("}")) {
      nesting.close();
      if (nesting.depth() == 0) return i + 1;
    }
  }
  return end;
}

bool TokenView::is_shift(std::size_t i) const {
  return (*this)[i].is("<") && (*this)[i + 1].is("<") &&
         (*this)[i].text.data() + 1 == (*this)[i + 1].text.data();
}

std::size_t TokenView::after_angles(std::size_t i, std::size_t end) const {
  const std::size_t first = read_angles(i, end, false);
  if (closes_angles(first, i)) return first;
  const std::size_t second = read_angles(i, end, true);
  return closes_angles(second, i) ? second : first;
}
bool TokenView::closes_angles(std::size_t after, std::size_t open) const {
  return after > open + 1 && after <= tokens_.size() && tokens_[after - 1].is(">");
}
std::size_t TokenView::read_angles(std::size_t i, std::size_t end, bool spaced_is_less) const {
  const std::size_t open = i;
  int angles = 0;
  for (std::size_t steps = 0; i < end && steps < kMostArguments; ++steps) {
    const Token& t = (*this)[i];
    const bool body = t.is("{") && i > open && tokens_[i - 1].is(")");
    const bool another = t.is("template") && i > open && !tokens_[i - 1].is("<") && !tokens_[i - 1].is(",") &&
                         !tokens_[i - 1].is("::") && !tokens_[i - 1].is(".") && !tokens_[i - 1].is(">");
    // The '>' of a name that is not closed is no end of these arguments.
    if (t.is(";") || t.is("}") || body || another) return open;
    if (t.is("(") || t.is("[") || t.is("{")) {
      i = after_group(i, end);
      continue;
    }
    if (t.is("<") && angles > 0 && is_shift(i)) {
      i += 2;
      continue;
    }
    // No blank divides the characters of >= and <=.
    if ((t.is("<") || t.is(">")) && (*this)[i + 1].is("=") && (*this)[i + 1].text.data() == end_of(t)) {
      i += 2;
      continue;
    }
    if (t.is("<") && (angles == 0 || (tokens_[i - 1].is_word() && !(spaced_is_less && is_spaced(i)))))
      ++angles;
    const bool arrow = i > 0 && tokens_[i - 1].is("-");
    if (t.is(">") && !arrow && --angles == 0) return i + 1;
    ++i;
  }
  return open;
}
bool TokenView::is_spaced(std::size_t i) const {
  return i > 0 && i + 1 < tokens_.size() && tokens_[i].text.data() != end_of(tokens_[i - 1]) &&
         tokens_[i + 1].text.data() != end_of(tokens_[i]);
}

std::vector<TokenRange> TokenView::pieces(std::size_t from, std::size_t to) const {
  std::vector<TokenRange> out;
  std::size_t begin = from;
  for (std::size_t i = from; i <= to;) {
    const Token& t = (*this)[i];
    if (i == to || t.is(",")) {
      if (i > begin) out.push_back({begin, i});
      begin = ++i;
    } else if (t.is("(") || t.is("[") || t.is("{")) {
      i = after_group(i, to);
    } else if (t.is("<") && i > from && (*this)[i - 1].is_word() && !is_shift(i)) {
      i = std::max(after_angles(i, to), i + 1);
    } else {
      ++i;
    }
  }
  return out;
}

std::size_t TokenView::after_directives(std::size_t i, std::size_t end) const {
  while (i < end && (*this)[i].kind == Token::Kind::directive) ++i;
  return i;
}

std::vector<std::string_view> TokenView::words(std::size_t from, std::size_t to) const {
  std::unordered_set<std::string_view> seen;
  std::vector<std::string_view> out;
  to = std::min(to, tokens_.size());
  for (std::size_t i = from; i < to; ++i) {
    if (tokens_[i].kind == Token::Kind::directive) {
      for (const Token& inner : tokens_of(directive_text(tokens_[i].text).rest))
        if (inner.is_word() && seen.insert(inner.text).second) out.push_back(inner.text);
    } else if (tokens_[i].is_word() && seen.insert(tokens_[i].text).second) {
      out.push_back(tokens_[i].text);
    }
  }
  return out;
}

}  // namespace kiln::source
