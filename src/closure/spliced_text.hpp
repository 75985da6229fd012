// Source text as the preprocessor sees it before it makes tokens: splices, trigraphs and
// comments are transparent.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace kiln::source {

/// Longest header name, and longest word, that is kept.
inline constexpr std::size_t kMaxName = 1024;

constexpr bool is_word(char c) { return base::is_identifier_character(c) || c == '$'; }
/// NVRTC treats a carriage return without a line feed as a blank.
constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r'; }

/// The characters of a name in a #define line that is taken for a header's name.
inline constexpr std::array<bool, 256> kHeaderCharacter = [] {
  std::array<bool, 256> out{};
  for (int c = 0; c < 256; ++c) out[static_cast<std::size_t>(c)] = c >= 0x80 || is_word(static_cast<char>(c));
  for (const char c : {'.', '/', '+', '-', '~', '@', '='}) out[static_cast<unsigned char>(c)] = true;
  return out;
}();

/// Positions count in the raw text. Every character past the end is '\0'.
class SplicedText {
 public:
  explicit SplicedText(std::string_view text) noexcept : text_(text) {}

  std::string_view raw() const noexcept { return text_; }
  std::size_t size() const noexcept { return text_.size(); }
  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  /// Length of the line splice that begins at i, or 0. Trigraphs count: C++14 still has them.
  std::size_t splice_length(std::size_t i) const {
    std::size_t end = i + (at(i) == '\\' ? 1 : text_.substr(i).starts_with("\?\?/") ? 3 : 0);
    if (end == i) return 0;
    while (at(end) == '\r') ++end;
    return at(end) == '\n' ? end + 1 - i : 0;
  }
  /// Length of the line splice that ends before i, or 0.
  std::size_t splice_before(std::size_t i) const {
    if (i < 2 || text_[i - 1] != '\n') return 0;
    std::size_t end = i - 1;
    while (end > 0 && text_[end - 1] == '\r') --end;
    const std::string_view before = text_.substr(0, end);
    return before.ends_with('\\') ? i - end + 1 : before.ends_with("\?\?/") ? i - end + 3 : 0;
  }
  std::size_t skip_splices(std::size_t i) const {
    while (at(i) == '\\' || at(i) == '?') {
      const std::size_t length = splice_length(i);
      if (length == 0) break;
      i += length;
    }
    return i;
  }
  /// Skips blanks, comments and splices, but not the end of the line.
  std::size_t skip_blanks(std::size_t i) {
    for (;;) {
      i = skip_splices(i);
      if (is_blank(at(i)) && i < text_.size()) {
        ++i;
      } else if (at(i) == '/' && at(skip_splices(i + 1)) == '*') {
        i = comment_end(skip_splices(i + 1) + 1);
      } else {
        return i;
      }
    }
  }
  /// The position after the "*/" of the comment whose text begins at i; the end of the text when there is no
  /// "*/". The last answer is kept, so that a text full of "/*" is not scanned in quadratic time.
  std::size_t comment_end(std::size_t i) {
    if (i >= comment_from_ && i + 2 <= comment_end_) return comment_end_;
    comment_from_ = i;
    for (std::size_t star = i; (star = text_.find('*', star)) != std::string_view::npos; ++star) {
      const std::size_t slash = skip_splices(star + 1);
      if (at(slash) == '/') return comment_end_ = slash + 1;
    }
    return comment_end_ = text_.size();
  }
  /// The identifier at i without its splices; i moves past it. At most kMaxName characters are kept.
  std::string_view word(std::size_t& i) {
    const std::size_t start = i;
    while (is_word(at(i))) ++i;
    if (splice_length(i) == 0) return text_.substr(start, i - start);
    word_.assign(text_.substr(start, i - start));
    for (i = skip_splices(i); is_word(at(i)); i = skip_splices(i + 1)) {
      if (word_.size() < kMaxName) word_ += at(i);
    }
    return word_;
  }
  /// Copies the text from i to `close` on the same line, without splices, into `out`. False when it is empty,
  /// too long or without `close`, or when it must be header-like and is not.
  bool name(std::size_t i, char close, bool header_like, std::string& out) {
    out.clear();
    while (i < text_.size() && out.size() <= kMaxName) {
      const char c = text_[i];
      if (c == close) return !out.empty() && out.size() <= kMaxName;
      if (const std::size_t length = c == '\\' || c == '?' ? splice_length(i) : 0) {
        i += length;
        continue;
      }
      if (c == '\n' || c == '\0' || (c == '\r' && at(i + 1) == '\n')) return false;
      if (header_like && (is_blank(c) || c == '/') && at(skip_blanks(i)) == close) return !out.empty();
      if (header_like && !kHeaderCharacter[static_cast<unsigned char>(c)]) return false;
      out += c;
      ++i;
    }
    return false;
  }

 private:
  std::string_view text_;
  std::string word_;
  std::size_t comment_from_ = 1, comment_end_ = 0;
};

}  // namespace kiln::source
