// Position in an expression's text. It gives tokens, and error messages with a column. Private to the folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::source {

class ExpressionCursor {
 public:
  /// Keeps views of both texts. `where` begins every error message.
  ExpressionCursor(std::string_view text, std::string_view where) noexcept : text_(text), where_(where) {}

  /// The next character after blanks; 0 at the end. All the functions below skip blanks first, too.
  char peek() noexcept {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool at_end() noexcept;
  bool at_digit() noexcept;
  bool at_letter() noexcept;
  std::size_t position() noexcept;
  std::string_view rest() noexcept;
  bool take(std::string_view token) noexcept;
  void expect(std::string_view token);
  /// Reads a literal of at most 63 bits. REQUIRES: at_digit().
  std::int64_t literal();
  /// Reads a name such as "H" or "dev.sms"; empty when no name begins here.
  std::string_view name() noexcept;

  [[noreturn]] void fail(const std::string& message);
  [[noreturn]] void fail_at(std::size_t position, const std::string& message) const;

 private:
  void skip_blanks() noexcept {
    const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }

  std::string_view text_, where_;
  std::size_t at_ = 0;
};

}  // namespace kiln::source
