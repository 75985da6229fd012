#include "overlay/tokens.hpp"

#include <algorithm>
#include <string>

#include "base/text.hpp"

namespace kiln::source {
namespace {

bool is_blank_character(char c) {
  return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r' || c == '\n';
}
bool is_word_character(char c) {
  return base::is_identifier_character(c) || c == '$' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_decimal(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {
    if (text.starts_with("\xef\xbb\xbf")) at_ = 3;  // a byte order mark
  }

  std::vector<Token> run() {
    while (skip_blanks()) {
      const std::size_t start = at_;
      const Token::Kind kind = one();
      out_.push_back({kind, text_.substr(start, at_ - start)});
      line_begins_ = false;
    }
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void to(std::size_t position) { at_ = std::min(position, text_.size()); }
  std::size_t find(std::string_view what, std::size_t from) const {
    const std::size_t found = text_.find(what, from);
    return found == std::string_view::npos ? text_.size() : found;
  }

  /// Moves to the next token. False at the end of the text.
  bool skip_blanks() {
    for (; at_ < text_.size();) {
      const char c = text_[at_];
      if (is_blank_character(c)) {
        line_begins_ = line_begins_ || c == '\n';
        ++at_;
      } else if (at_continuation()) {
        to(find("\n", at_) + 1);
      } else if (c == '/' && peek(1) == '*') {
        to(find("*/", at_ + 2) + 2);
      } else if (c == '/' && peek(1) == '/') {
        to(line_end(at_));
      } else {
        return true;
      }
    }
    return false;
  }
  /// The position of the newline that ends the line, after all continuations.
  std::size_t line_end(std::size_t from) const {
    std::size_t end = find("\n", from);
    while (end < text_.size()) {
      std::size_t last = end;
      while (last > from && text_[last - 1] == '\r') --last;
      if (last == from || text_[last - 1] != '\\') break;
      end = find("\n", end + 1);
    }
    return end;
  }
  Token::Kind one() {
    const char c = peek();
    if (c == '#' && line_begins_) {
      directive();
      return Token::Kind::directive;
    }
    if (is_decimal(c) || (c == '.' && is_decimal(peek(1)))) {
      number();
      return Token::Kind::literal;
    }
    if (is_word_character(c)) {
      const std::size_t start = at_;
      while (is_word_character(peek())) ++at_;
      const std::string_view word = text_.substr(start, at_ - start);
      if (peek() != '"') return Token::Kind::word;
      if (word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R") {
        raw_string();
        return Token::Kind::literal;
      }
      return Token::Kind::word;
    }
    if (c == '"' || c == '\'') {
      quoted(c);
      return Token::Kind::literal;
    }
    at_ += c == ':' && peek(1) == ':' ? 2 : 1;
    return Token::Kind::symbol;
  }
  bool at_continuation() const {
    return peek() == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'));
  }
  /// A directive ends with its line, but a comment in it may go on to another line.
  void directive() {
    line_begins_ = false;
    while (at_ < text_.size() && peek() != '\n') {
      if (at_continuation()) {
        to(find("\n", at_) + 1);
      } else if (peek() == '/' && peek(1) == '*') {
        to(find("*/", at_ + 2) + 2);
      } else if (peek() == '/' && peek(1) == '/') {
        to(line_end(at_));
      } else {
        one();
      }
    }
  }
  void number() {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = peek(), before = text_[at_ - 1];
      const bool sign =
          (c == '+' || c == '-') && (before == 'e' || before == 'E' || before == 'p' || before == 'P');
      if (!is_word_character(c) && c != '.' && !sign && !(c == '\'' && is_word_character(peek(1)))) return;
    }
  }
  void quoted(char quote) {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = peek();
      if (c == '\\') {
        at_ += at_continuation() && peek(1) == '\r' ? 2 : 1;
      } else if (c == quote) {
        ++at_;
        return;
      } else if (c == '\n') {
        return;
      }
    }
    to(at_);
  }
  void raw_string() {
    const std::size_t open = find("(", at_);
    if (open - at_ > 17) return quoted('"');
    const std::string close = ')' + std::string(text_.substr(at_ + 1, open - at_ - 1)) + '"';
    to(find(close, open) + close.size());
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  bool line_begins_ = true;
  std::vector<Token> out_;
};

/// Drops what stands between `#if 0` and its #else, #elif or #endif. The directives stay.
void drop_disabled(std::vector<Token>& tokens) {
  int depth = 0;  // of conditionals inside of the disabled text; 0: not disabled
  std::erase_if(tokens, [&](const Token& token) {
    if (token.kind != Token::Kind::directive) return depth > 0;
    const DirectiveText d = directive_text(token.text);
    const bool opens = d.name == "if" || d.name == "ifdef" || d.name == "ifndef";
    if (depth == 0) {
      const std::vector<Token> condition = d.name == "if" ? Lexer(d.rest).run() : std::vector<Token>{};
      if (condition.size() == 1 && condition[0].is("0")) depth = 1;
      return false;
    }
    if (opens) ++depth;
    if (d.name == "endif" || (depth == 1 && d.name.starts_with("el"))) --depth;
    return depth > 0;
  });
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> out = Lexer(text).run();
  drop_disabled(out);
  return out;
}

DirectiveText directive_text(std::string_view line) {
  std::size_t at = 1;
  while (at < line.size() && (line[at] == ' ' || line[at] == '\t' || line.substr(at, 2) == "/*"))
    at = line[at] == '/' ? std::min(line.find("*/", at + 2), line.size() - 2) + 2 : at + 1;
  std::size_t end = at;
  while (end < line.size() && is_word_character(line[end])) ++end;
  return {line.substr(at, end - at), line.substr(end)};
}

}  // namespace kiln::source
