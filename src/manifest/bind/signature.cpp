#include "manifest/bind/signature.hpp"

#include <stdexcept>

#include "base/quote.hpp"
#include "base/text.hpp"

namespace kiln::source {
namespace {

bool is_space(char c) noexcept { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string without_blanks(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

/// The first `character` from `at` on that is in no parentheses, or the end.
std::size_t find_outside(std::string_view text, char character, std::size_t at) noexcept {
  for (int depth = 0; at < text.size() && (depth > 0 || text[at] != character); ++at)
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
  return at;
}

class SignatureReader {
 public:
  explicit SignatureReader(std::string_view text) : text_(text) {}

  std::vector<SignaturePart> all() {
    std::vector<SignaturePart> out;
    while (!at_end()) {
      if (!out.empty()) expect(",");
      out.push_back(part());
    }
    return out;
  }

 private:
  SignaturePart part() {
    SignaturePart out;
    out.name = name("a name");
    expect(":");
    out.type = peek() == '(' ? parentheses() : name("a type");
    if (peek() == '[') {
      do out.shapes.push_back(brackets());
      while (take("|"));
    }
    if (take("by ")) out.strides = brackets();
    out.written = take("!");
    out.optional = take("?");
    if (take("=")) out.fallback = until_comma();
    return out;
  }

  void skip_blanks() noexcept {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  char peek() noexcept {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool at_end() noexcept { return peek() == '\0'; }
  bool take(std::string_view token) noexcept {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(base::quote(token));
  }
  std::string name(const char* what) {
    skip_blanks();
    const std::size_t start = at_;
    while (at_ < text_.size() && base::is_identifier_character(text_[at_])) ++at_;
    const std::string out(text_.substr(start, at_ - start));
    if (!base::is_identifier(out)) at_ = start, fail(what);
    return out;
  }
  std::string brackets() {
    expect("[");
    const std::size_t start = at_;
    at_ = text_.find(']', at_);
    if (at_ == std::string_view::npos) at_ = text_.size(), fail("']'");
    return without_blanks(text_.substr(start, at_++ - start));
  }
  std::string parentheses() {
    const std::size_t start = at_;
    int depth = 0;
    do {
      if (at_ == text_.size()) fail("')'");
      depth += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
      ++at_;
    } while (depth > 0);
    return std::string(text_.substr(start, at_ - start));
  }
  std::string until_comma() {
    skip_blanks();
    const std::size_t start = at_;
    at_ = find_outside(text_, ',', at_);
    std::string out = without_blanks(text_.substr(start, at_ - start));
    if (out.empty()) fail("a default");
    return out;
  }
  [[noreturn]] void fail(const std::string& expected) {
    const std::string_view rest = text_.substr(at_);
    throw std::invalid_argument("column " + std::to_string(at_ + 1) + ": expected " + expected +
                                (rest.empty() ? " at the end" : " before " + base::quote(rest, 40)));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<SignaturePart> parse_signature(std::string_view text) { return SignatureReader(text).all(); }

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> out;
  if (text.empty()) return out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = find_outside(text, ',', start);
    out.push_back(without_blanks(text.substr(start, end - start)));
    start = end + 1;
  }
  return out;
}

}  // namespace kiln::source
