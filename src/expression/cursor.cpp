#include "expression/cursor.hpp"

#include <charconv>

#include "base/quote.hpp"
#include "kiln/error.hpp"

namespace kiln::source {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool ExpressionCursor::at_end() noexcept { return position() == text_.size(); }
bool ExpressionCursor::at_digit() noexcept { return !at_end() && is_digit(text_[at_]); }
bool ExpressionCursor::at_letter() noexcept { return !at_end() && is_letter(text_[at_]); }
std::size_t ExpressionCursor::position() noexcept {
  skip_blanks();
  return at_;
}
std::string_view ExpressionCursor::rest() noexcept { return text_.substr(position()); }

bool ExpressionCursor::take(std::string_view token) noexcept {
  if (!rest().starts_with(token)) return false;
  at_ += token.size();
  return true;
}

void ExpressionCursor::expect(std::string_view token) {
  if (!take(token)) fail("expected '" + std::string(token) + "'");
}

std::int64_t ExpressionCursor::literal() {
  const std::size_t start = position();
  while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
  if (at_ < text_.size() && text_[at_] == '.') fail_at(start, "expected an integer, not a fraction");
  std::string_view digits = text_.substr(start, at_ - start);
  const bool hex = digits.starts_with("0x") || digits.starts_with("0X");
  const bool octal = !hex && digits.size() > 1 && digits[0] == '0';
  if (hex) digits.remove_prefix(2);
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (octal || error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    fail_at(start, "expected an integer (decimal, or 0x...)");
  }
  if (error != std::errc{}) fail_at(start, "the integer does not fit in 64 bits");
  return value;
}

std::string_view ExpressionCursor::name() noexcept {
  const std::size_t start = position();
  if (!at_letter()) return {};
  while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
  return text_.substr(start, at_ - start);
}

void ExpressionCursor::fail(const std::string& message) { fail_at(position(), message); }

void ExpressionCursor::fail_at(std::size_t position, const std::string& message) const {
  throw Error(Errc::manifest, std::string(where_) + ": expression " + base::quote(text_) + ", column " +
                                  std::to_string(position + 1) + ": " + message);
}

}  // namespace kiln::source
