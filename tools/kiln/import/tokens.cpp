#include "tools/kiln/import/tokens.hpp"
#include "tools/kiln/import/brackets.hpp"

#include <algorithm>
#include <map>

#include "closure/spliced_text.hpp"

namespace kiln::cli {
namespace {

using source::is_word;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_word(char c) { return (is_word(c) && !is_digit(c)) || static_cast<unsigned char>(c) >= 0x80; }
bool continues_word(char c) { return is_word(c) || static_cast<unsigned char>(c) >= 0x80; }

/// The longest body that is expanded. Bodies are expanded when they are defined, so macros of macros cannot
/// grow beyond it.
constexpr std::size_t kMostMacroTokens = 64;

struct Expansions {
  std::map<std::string, Tokens> given, defined;
  const Tokens* of(const std::string& name) const {
    for (const auto* known : {&given, &defined})
      if (const auto found = known->find(name); found != known->end()) return &found->second;
    return nullptr;
  }
};

class Lexer {
 public:
  Lexer(std::string_view text, Branches branches, Expansions& macros) : branches_(branches), macros_(macros) {
    splice(text);
  }

  LexedSource run() {
    while (at_ < text_.size()) step();
    return std::move(out_);
  }

 private:
  struct Conditional {
    bool outer_active = true, settled = false;
    std::size_t tokens = 0, includes = 0;  ///< how many there were before it
  };

  void splice(std::string_view raw) {
    const source::SplicedText spliced(raw);
    text_.reserve(raw.size());
    for (std::size_t i = 0; i < raw.size();) {
      const std::size_t length = raw[i] == '\\' ? spliced.splice_length(i) : 0;
      if (length == 0) {
        text_ += raw[i++];
        continue;
      }
      splices_.push_back(text_.size());
      i += length;
    }
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void advance(std::size_t count = 1) {
    for (; count > 0 && at_ < text_.size(); --count, ++at_) {
      if (text_[at_] == '\n') ++line_, line_begins_ = true;
      while (next_splice_ < splices_.size() && splices_[next_splice_] <= at_) ++next_splice_, ++line_;
    }
  }
  void emit(Token::Kind kind, std::string text, int line) {
    line_begins_ = false;
    if (active_) out_.tokens.push_back({kind, std::move(text), line});
  }

  void step() {
    const char c = peek();
    if (c == '/' && peek(1) == '/') return skip_line();
    if (c == '/' && peek(1) == '*') return skip_comment();
    if (c == '#' && line_begins_) return directive();
    if (c == '"' || c == '\'') return literal();
    if (starts_word(c)) return word();
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f' || c == '\0')
      return advance();
    punctuation();
  }
  void skip_line() {
    while (at_ < text_.size() && peek() != '\n') advance();
  }
  void skip_comment() {
    const std::size_t close = text_.find("*/", at_ + 2);
    const bool first = line_begins_;
    advance((close == std::string::npos ? text_.size() : close + 2) - at_);
    line_begins_ = line_begins_ || first;
  }
  void literal() {
    const char quote = peek();
    const int line = line_;
    std::string text(1, quote);
    advance();
    while (at_ < text_.size() && peek() != quote && peek() != '\n') {
      if (peek() == '\\') text += peek(), advance();
      text += peek(), advance();
    }
    if (peek() == quote) advance();
    text += quote;
    emit(Token::Kind::literal, std::move(text), line);
  }
  void raw_literal(int line) {
    const std::size_t open = text_.find('(', at_);
    const std::size_t most = at_ + 18;  // a delimiter has at most 16 characters
    if (open == std::string::npos || open > most) return literal();
    const std::string close = ')' + text_.substr(at_ + 1, open - at_ - 1) + '"';
    const std::size_t end = text_.find(close, open);
    advance((end == std::string::npos ? text_.size() : end + close.size()) - at_);
    emit(Token::Kind::literal, "\"\"", line);
  }
  void word() {
    const int line = line_;
    std::string text;
    while (continues_word(peek()) && at_ < text_.size()) text += peek(), advance();
    if (peek() == '"' && (text == "R" || text == "LR" || text == "uR" || text == "UR" || text == "u8R"))
      return raw_literal(line);
    const Tokens* body = macros_.of(text);
    if (!body) return emit(Token::Kind::word, std::move(text), line);
    line_begins_ = false;
    for (const Token& t : *body) emit(t.kind, t.text, line);
  }
  void number() {
    const int line = line_;
    std::string text;
    while (at_ < text_.size() && (is_word(peek()) || peek() == '.' || (peek() == '\'' && is_word(peek(1))) ||
                                  ((peek() == '+' || peek() == '-') && is_exponent(text)))) {
      if (peek() != '\'') text += peek();
      advance();
    }
    emit(Token::Kind::number, std::move(text), line);
  }
  static bool is_exponent(const std::string& number) {
    const bool hex = number.size() > 1 && (number[1] == 'x' || number[1] == 'X');
    const char last = number.empty() ? '\0' : number.back();
    return hex ? last == 'p' || last == 'P' : last == 'e' || last == 'E';
  }
  /// '>' always stands alone: two of them close two lists.
  void punctuation() {
    constexpr std::string_view several[] = {
        "<=>", "...", "::", "->", "<=", ">=", "<<", "==", "!=", "&&", "||"};
    const int line = line_;
    std::string text(1, peek());
    for (const std::string_view one : several) {
      if (text_.compare(at_, one.size(), one) == 0) {
        text = one;
        break;
      }
    }
    advance(text.size());
    emit(Token::Kind::punctuation, std::move(text), line);
  }

  void directive() {
    std::string text;
    advance();
    while (at_ < text_.size() && peek() != '\n') {
      if (peek() == '/' && peek(1) == '/') {
        skip_line();
      } else if (peek() == '/' && peek(1) == '*') {
        skip_comment();
        text += ' ';
      } else {
        text += peek();
        advance();
      }
    }
    line_begins_ = true;
    obey(text);
  }
  static std::string take_word(std::string_view& text) {
    const auto blank = [](char c) { return source::is_blank(c); };
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    std::size_t end = 0;
    while (end < text.size() && continues_word(text[end])) ++end;
    std::string out(text.substr(0, end));
    text.remove_prefix(end);
    return out;
  }
  void obey(std::string_view text) {
    const std::string keyword = take_word(text);
    if (keyword == "if" || keyword == "ifdef" || keyword == "ifndef") return open(keyword, text);
    if (keyword == "elif" || keyword == "elifdef" || keyword == "elifndef" || keyword == "else")
      return turn(keyword, text);
    if (keyword == "endif") return close();
    if (!active_) return;
    if (keyword == "define") return define(text);
    if (keyword == "undef") macros_.defined.erase(take_word(text));
    if (keyword == "include") include(text);
  }
  static std::string bare(std::string_view text) {
    const auto begin = text.find_first_not_of(" \t\r\v\f");
    const auto end = text.find_last_not_of(" \t\r\v\f");
    return begin == std::string_view::npos ? std::string() : std::string(text.substr(begin, end + 1 - begin));
  }
  void open(const std::string& keyword, std::string_view condition) {
    const std::string text = keyword == "if" ? bare(condition) : std::string("?");
    conditionals_.push_back({active_, false, out_.tokens.size(), out_.includes.size()});
    const bool never = text == "0" || text == "false";
    conditionals_.back().settled = !never && (branches_ == Branches::first || text == "1" || text == "true");
    active_ = active_ && !never;
  }
  void turn(const std::string& keyword, std::string_view condition) {
    if (conditionals_.empty()) return;
    Conditional& at = conditionals_.back();
    if (!at.outer_active) return;
    active_ = !at.settled && (keyword == "else" || bare(condition) != "0");
    if (!active_) return;
    out_.tokens.resize(std::min(at.tokens, out_.tokens.size()));
    out_.includes.resize(std::min(at.includes, out_.includes.size()));
    at.settled = branches_ == Branches::first;
  }
  void close() {
    if (conditionals_.empty()) return;
    active_ = conditionals_.back().outer_active;
    conditionals_.pop_back();
  }
  void define(std::string_view text) {
    const std::string name = take_word(text);
    macros_.defined.erase(name);
    if (name.empty() || text.starts_with('(')) return;
    Lexer lexer(text, Branches::first, macros_);
    lexer.line_begins_ = false;  // no directive in a directive
    Tokens body = lexer.run().tokens;
    const auto global = [](const Token& t) { return t.is("__global__"); };
    if (body.size() <= kMostMacroTokens && std::any_of(body.begin(), body.end(), global))
      macros_.defined.insert_or_assign(name, std::move(body));
  }
  void include(std::string_view text) {
    const std::string name = bare(text);
    if (name.size() < 3 || (name.front() != '<' && name.front() != '"')) return;
    const auto close = name.find(name.front() == '<' ? '>' : '"', 1);
    if (close != std::string::npos) out_.includes.push_back(name.substr(1, close - 1));
  }

  const Branches branches_;
  std::string text_;
  std::vector<std::size_t> splices_;  // where in text_ a line was continued
  std::size_t at_ = 0, next_splice_ = 0;
  int line_ = 1;
  bool line_begins_ = true, active_ = true;
  std::vector<Conditional> conditionals_;
  Expansions& macros_;
  LexedSource out_;
};

}  // namespace

LexedSource lex(std::string_view text, Branches branches, const Macros& given) {
  Expansions macros;
  for (const auto& [name, body] : given) {
    Tokens tokens = Lexer(body, Branches::first, macros).run().tokens;
    if (tokens.size() <= kMostMacroTokens) macros.given.insert_or_assign(name, std::move(tokens));
  }
  LexedSource out = Lexer(text, branches, macros).run();
  for (const auto& [name, body] : macros.defined) out.kernel_macros.emplace_back(name, joined(body));
  return out;
}

}  // namespace kiln::cli
