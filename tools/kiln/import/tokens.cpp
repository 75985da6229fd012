#include "tools/kiln/import/tokens.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "closure/spliced_text.hpp"
#include "tools/kiln/import/brackets.hpp"

namespace kiln::cli {
namespace {

using source::is_word;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_word(char c) { return (is_word(c) && !is_digit(c)) || static_cast<unsigned char>(c) >= 0x80; }
bool continues_word(char c) { return is_word(c) || static_cast<unsigned char>(c) >= 0x80; }

/// A directive's operand without the blanks around it.
std::string_view bare(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\v\f");
  const auto end = text.find_last_not_of(" \t\r\v\f");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

/// The longest macro body that is expanded, in tokens. Bodies are expanded when they are defined, so nested
/// macros cannot exceed this limit.
constexpr std::size_t kMostMacroTokens = 64;

struct Expansions {
  std::map<std::string, Tokens> given, defined;
  const Tokens* of(const std::string& name) const {
    for (const auto* known : {&given, &defined})
      if (const auto found = known->find(name); found != known->end()) return &found->second;
    return nullptr;
  }
};

/// A position in text whose continued lines were joined. It only moves forwards. It counts lines of the
/// original text.
class TextCursor {
 public:
  explicit TextCursor(std::string_view raw) {
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

  bool at_end() const noexcept { return at_ >= text_.size(); }
  /// Returns '\0' after the end.
  char peek(std::size_t ahead = 0) const noexcept {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  std::string_view rest() const noexcept { return std::string_view(text_).substr(at_); }
  int line() const noexcept { return line_; }  ///< from 1
  /// True when only blanks and comments of this line were read. There '#' begins a directive.
  bool line_begins() const noexcept { return line_begins_; }

  void advance(std::size_t count = 1) noexcept {
    for (; count > 0 && at_ < text_.size(); --count, ++at_) {
      if (text_[at_] == '\n') ++line_, line_begins_ = true;
      while (next_splice_ < splices_.size() && splices_[next_splice_] <= at_) ++next_splice_, ++line_;
    }
  }
  void set_line_begins(bool begins) noexcept { line_begins_ = begins; }

 private:
  std::string text_;
  std::vector<std::size_t> splices_;  // positions in text_ at which lines were joined
  std::size_t at_ = 0, next_splice_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
};

/// The open conditionals at one point of a text. Conditions are passed without surrounding blanks.
class Conditionals {
 public:
  /// How much of the text was kept so far.
  struct Kept {
    std::size_t tokens = 0, includes = 0;
  };

  explicit Conditionals(Branches branches) noexcept : branches_(branches) {}

  /// True when text at this point is read.
  bool active() const noexcept { return active_; }
  /// Handles #if, #ifdef or #ifndef, which stands after `kept`.
  void open(std::string_view keyword, std::string_view condition, Kept kept) {
    const std::string_view text = keyword == "if" ? condition : "?";
    const bool never = text == "0" || text == "false";
    const bool settled = !never && (branches_ == Branches::first || text == "1" || text == "true");
    open_.push_back({active_, settled, kept});
    active_ = active_ && !never;
  }
  /// Handles #else or #elif. When this branch replaces an earlier one, returns what was kept before both.
  std::optional<Kept> turn(std::string_view keyword, std::string_view condition) {
    if (open_.empty()) return std::nullopt;
    Conditional& at = open_.back();
    if (!at.outer_active) return std::nullopt;
    active_ = !at.settled && (keyword == "else" || condition != "0");
    if (!active_) return std::nullopt;
    at.settled = branches_ == Branches::first;
    return at.before;
  }
  /// Handles #endif.
  void close() {
    if (open_.empty()) return;
    active_ = open_.back().outer_active;
    open_.pop_back();
  }

 private:
  struct Conditional {
    bool outer_active = true, settled = false;
    Kept before;
  };
  const Branches branches_;
  bool active_ = true;
  std::vector<Conditional> open_;
};

/// Reads one text into tokens.
class Lexer {
 public:
  Lexer(std::string_view text, Branches branches, Expansions& macros)
      : at_(text), conditionals_(branches), macros_(macros) {}

  LexedSource run() {
    while (!at_.at_end()) step();
    return std::move(out_);
  }

 private:
  void emit(Token::Kind kind, std::string text, int line) {
    at_.set_line_begins(false);
    if (conditionals_.active()) out_.tokens.push_back({kind, std::move(text), line});
  }

  void step() {
    const char c = at_.peek();
    if (c == '/' && at_.peek(1) == '/') return skip_line();
    if (c == '/' && at_.peek(1) == '*') return skip_comment();
    if (c == '#' && at_.line_begins()) return directive();
    if (c == '"' || c == '\'') return literal();
    if (starts_word(c)) return word();
    if (is_digit(c) || (c == '.' && is_digit(at_.peek(1)))) return number();
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f' || c == '\0')
      return at_.advance();
    punctuation();
  }
  void skip_line() {
    while (!at_.at_end() && at_.peek() != '\n') at_.advance();
  }
  void skip_comment() {
    const std::size_t close = at_.rest().find("*/", 2);
    const bool first = at_.line_begins();
    at_.advance(close == std::string_view::npos ? at_.rest().size() : close + 2);
    at_.set_line_begins(at_.line_begins() || first);
  }
  void literal() {
    const char quote = at_.peek();
    const int line = at_.line();
    std::string text(1, quote);
    at_.advance();
    while (!at_.at_end() && at_.peek() != quote && at_.peek() != '\n') {
      if (at_.peek() == '\\') text += at_.peek(), at_.advance();
      text += at_.peek(), at_.advance();
    }
    if (at_.peek() == quote) at_.advance();
    text += quote;
    emit(Token::Kind::literal, std::move(text), line);
  }
  void raw_literal(int line) {
    constexpr std::size_t kFurthest = 18;  // a raw string's delimiter has at most 16 characters
    const std::string_view rest = at_.rest();
    const std::size_t open = rest.find('(');
    if (open == std::string_view::npos || open > kFurthest) return literal();
    const std::string close = ')' + std::string(rest.substr(1, open - 1)) + '"';
    const std::size_t end = rest.find(close, open);
    at_.advance(end == std::string_view::npos ? rest.size() : end + close.size());
    emit(Token::Kind::literal, "\"\"", line);
  }
  void word() {
    const int line = at_.line();
    std::string text;
    while (continues_word(at_.peek()) && !at_.at_end()) text += at_.peek(), at_.advance();
    if (at_.peek() == '"' && (text == "R" || text == "LR" || text == "uR" || text == "UR" || text == "u8R"))
      return raw_literal(line);
    const Tokens* body = macros_.of(text);
    if (!body) return emit(Token::Kind::word, std::move(text), line);
    at_.set_line_begins(false);
    for (const Token& t : *body) emit(t.kind, t.text, line);
  }
  void number() {
    const int line = at_.line();
    std::string text;
    while (!at_.at_end() &&
           (is_word(at_.peek()) || at_.peek() == '.' || (at_.peek() == '\'' && is_word(at_.peek(1))) ||
            ((at_.peek() == '+' || at_.peek() == '-') && is_exponent(text)))) {
      if (at_.peek() != '\'') text += at_.peek();
      at_.advance();
    }
    emit(Token::Kind::number, std::move(text), line);
  }
  static bool is_exponent(const std::string& number) {
    const bool hex = number.size() > 1 && (number[1] == 'x' || number[1] == 'X');
    const char last = number.empty() ? '\0' : number.back();
    return hex ? last == 'p' || last == 'P' : last == 'e' || last == 'E';
  }
  /// '>' is always a token of its own, because ">>" may close two lists.
  void punctuation() {
    constexpr std::string_view several[] = {
        "<=>", "...", "::", "->", "<=", ">=", "<<", "==", "!=", "&&", "||"};
    const int line = at_.line();
    std::string text(1, at_.peek());
    for (const std::string_view one : several) {
      if (at_.rest().starts_with(one)) {
        text = one;
        break;
      }
    }
    at_.advance(text.size());
    emit(Token::Kind::punctuation, std::move(text), line);
  }

  void directive() {
    std::string text;
    at_.advance();
    while (!at_.at_end() && at_.peek() != '\n') {
      if (at_.peek() == '/' && at_.peek(1) == '/') {
        skip_line();
      } else if (at_.peek() == '/' && at_.peek(1) == '*') {
        skip_comment();
        text += ' ';
      } else {
        text += at_.peek();
        at_.advance();
      }
    }
    at_.set_line_begins(true);
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
    if (keyword == "if" || keyword == "ifdef" || keyword == "ifndef")
      return conditionals_.open(keyword, bare(text), {out_.tokens.size(), out_.includes.size()});
    if (keyword == "elif" || keyword == "elifdef" || keyword == "elifndef" || keyword == "else")
      return turn(keyword, text);
    if (keyword == "endif") return conditionals_.close();
    if (!conditionals_.active()) return;
    if (keyword == "define") return define(text);
    if (keyword == "undef") macros_.defined.erase(take_word(text));
    if (keyword == "include") include(text);
  }
  void turn(const std::string& keyword, std::string_view condition) {
    const auto kept = conditionals_.turn(keyword, bare(condition));
    if (!kept) return;
    out_.tokens.resize(std::min(kept->tokens, out_.tokens.size()));
    out_.includes.resize(std::min(kept->includes, out_.includes.size()));
  }
  void define(std::string_view text) {
    const std::string name = take_word(text);
    macros_.defined.erase(name);
    if (name.empty() || text.starts_with('(')) return;
    Lexer lexer(text, Branches::first, macros_);
    lexer.at_.set_line_begins(false);  // a '#' in a macro's body begins no directive
    Tokens body = lexer.run().tokens;
    const auto global = [](const Token& t) { return t.is("__global__"); };
    if (body.size() <= kMostMacroTokens && std::any_of(body.begin(), body.end(), global))
      macros_.defined.insert_or_assign(name, std::move(body));
  }
  void include(std::string_view text) {
    const std::string name(bare(text));
    if (name.size() < 3 || (name.front() != '<' && name.front() != '"')) return;
    const auto close = name.find(name.front() == '<' ? '>' : '"', 1);
    if (close != std::string::npos) out_.includes.push_back(name.substr(1, close - 1));
  }

  TextCursor at_;
  Conditionals conditionals_;
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
