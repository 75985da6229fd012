// Pratt parser from text to instructions.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "base/text.hpp"
#include "kiln/dtype.hpp"
#include "kiln/error.hpp"
#include "source/expression.hpp"
#include "source/expression_code.hpp"
#include "source/quote.hpp"

namespace kiln::source {
namespace {

struct BinaryOperator {
  std::string_view text;
  int precedence;  ///< C's order
  Op op;
};

/// Two-character operators first, so that the longest match wins.
constexpr BinaryOperator kBinary[] = {
    {"||", 1, Op::or_else},    {"&&", 2, Op::and_then},
    {"==", 6, Op::equal},      {"!=", 6, Op::not_equal},
    {"<<", 8, Op::shift_left}, {">>", 8, Op::shift_right},
    {"<=", 7, Op::less_equal}, {">=", 7, Op::greater_equal},
    {"<", 7, Op::less},        {">", 7, Op::greater},
    {"|", 3, Op::bit_or},      {"^", 4, Op::bit_xor},
    {"&", 5, Op::bit_and},     {"+", 9, Op::add},
    {"-", 9, Op::subtract},    {"*", 10, Op::multiply},
    {"/", 10, Op::divide},     {"%", 10, Op::remainder},
};

constexpr int kMaxNesting = 200;  // of the parser, so that no text overflows its stack
constexpr std::size_t kMaxInstructions =
    4096;  // stride() expands: bounds what a chain of expansions may grow to

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

class ExpressionCompiler {
 public:
  ExpressionCompiler(const Symbols& symbols, std::string_view where) : symbols_(symbols), where_(where) {}

  Expression run(std::string_view text) {
    out_.text_ = text;
    whole(text);
    std::sort(out_.reads_.begin(), out_.reads_.end());
    out_.reads_.erase(std::unique(out_.reads_.begin(), out_.reads_.end()), out_.reads_.end());
    return std::move(out_);
  }

 private:
  struct Nested {
    explicit Nested(ExpressionCompiler& compiler) : compiler_(compiler) {
      if (++compiler.nesting_ > kMaxNesting) compiler.fail("nested too deeply");
    }
    ~Nested() { --compiler_.nesting_; }
    ExpressionCompiler& compiler_;
  };

  void whole(std::string_view text) {
    text_ = text;
    at_ = 0;
    ternary();
    if (!peek_end()) fail("expected an operator or the end");
  }

  void ternary() {
    const Nested nested(*this);
    binary(1);
    if (!take("?")) return;
    const auto otherwise = jump(Op::jump_if_zero, -1);
    ternary();
    expect(":");
    const auto end = jump(Op::jump, 0);
    land(otherwise);
    --depth_;  // only one of the two branches leaves its value
    ternary();
    land(end);
  }

  void binary(int least) {
    const Nested nested(*this);
    unary();
    for (;;) {
      skip_space();
      const std::string_view rest = text_.substr(at_);
      const auto found = std::find_if(std::begin(kBinary), std::end(kBinary),
                                      [&](const BinaryOperator& o) { return rest.starts_with(o.text); });
      if (found == std::end(kBinary) || found->precedence < least) return;
      at_ += found->text.size();
      if (found->op == Op::and_then || found->op == Op::or_else) {
        const auto end = jump(found->op, -1);
        binary(found->precedence + 1);
        emit(Op::to_bool, 0, 0);
        land(end);
      } else {
        binary(found->precedence + 1);
        emit(found->op, 0, -1);
      }
    }
  }

  void unary() {
    const Nested nested(*this);
    skip_space();
    if (take("-")) return unary(), emit(Op::negate, 0, 0);
    if (take("!")) return unary(), emit(Op::logical_not, 0, 0);
    if (take("~")) return unary(), emit(Op::complement, 0, 0);
    if (take("+")) return unary();
    if (take("(")) return ternary(), expect(")");
    if (at_ < text_.size() && is_digit(text_[at_])) return number();
    if (at_ < text_.size() && is_letter(text_[at_])) return name();
    fail("expected a number, a name or '('");
  }

  std::int64_t literal() {
    skip_space();
    const std::size_t start = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    std::string_view digits = text_.substr(start, at_ - start);
    const bool hex = digits.starts_with("0x") || digits.starts_with("0X");
    if (hex) digits.remove_prefix(2);
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
    const bool octal = !hex && digits.size() > 1 && digits[0] == '0';
    if (octal || error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
      fail_at(start, "expected an integer (decimal, or 0x...)");
    }
    if (error != std::errc{}) fail_at(start, "the integer does not fit in 64 bits");
    if (at_ < text_.size() && text_[at_] == '.') fail_at(start, "expected an integer, not a fraction");
    return value;
  }
  void number() { emit(Op::push, literal(), 1); }

  std::string_view identifier() {
    skip_space();
    const std::size_t start = at_;
    while (at_ < text_.size() &&
           (is_letter(text_[at_]) || (at_ > start && (is_digit(text_[at_]) || text_[at_] == '.')))) {
      ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  void name() {
    const std::size_t start = at_;
    const std::string_view word = identifier();
    if (take("(")) return call(word, start);
    load(word, start);
  }

  void load(std::string_view word, std::size_t start) {
    if (const auto slot = symbols_.slots.find(word); slot != symbols_.slots.end()) {
      out_.reads_.push_back(slot->second);
      return emit(Op::load, slot->second, 1);
    }
    if (const auto constant = symbols_.constants.find(word); constant != symbols_.constants.end()) {
      return emit(Op::push, constant->second, 1);
    }
    unknown(word, start);
  }

  void call(std::string_view word, std::size_t start) {
    if (word == "sizeof") return named(word, symbols_.dtypes, Op::size_of, "a dtype or a dtype parameter");
    if (word == "align") return named(word, symbols_.pointers, Op::alignment, "a pointer argument");
    if (word == "stride") return stride();
    const auto found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                    [&](const Function& f) { return f.name == word; });
    if (found == std::end(kFunctions)) {
      std::vector<std::string> known = {"sizeof", "align", "stride"};
      for (const Function& f : kFunctions) known.emplace_back(f.name);
      fail_at(start, "unknown function " + quote(word) + base::did_you_mean(word, known) +
                         "; known: " + base::join(known, " "));
    }
    int count = 0;
    if (!take(")")) {
      do {
        ternary();
        ++count;
        if (found->arguments < 0 && count > 1) emit(found->op, 0, -1);
      } while (take(","));
      expect(")");
    }
    if (found->arguments < 0 ? count < 2 : count != found->arguments) {
      fail_at(start, std::string(word) + " takes " +
                         (found->arguments < 0 ? std::string("two or more values")
                                               : std::to_string(found->arguments) + " value(s)") +
                         ", not " + std::to_string(count));
    }
    if (found->arguments > 0) emit(found->op, 0, 1 - found->arguments);
  }

  void named(std::string_view function, const std::set<std::string, std::less<>>& allowed, Op op,
             const char* what) {
    skip_space();
    const std::size_t start = at_;
    const std::string_view word = identifier();
    if (!allowed.contains(word)) {
      if (!word.empty() && !symbols_.slots.contains(word) && !symbols_.constants.contains(word))
        unknown(word, start);
      fail_at(start,
              std::string(function) + " takes " + what + (word.empty() ? "" : ", not " + quote(word)));
    }
    load(word, start);
    emit(op, 0, 0);
    expect(")");
  }

  /// The declared stride expression of argument x, compiled in place.
  void stride() {
    const Nested nested(*this);
    skip_space();
    const std::size_t start = at_;
    const std::string_view word = identifier();
    const auto found = symbols_.strides.find(word);
    if (found == symbols_.strides.end()) {
      if (!word.empty() && !symbols_.slots.contains(word)) unknown(word, start);
      fail_at(start, "stride takes an argument with a declared shape" +
                         (word.empty() ? "" : ", not " + quote(word)));
    }
    expect(",");
    skip_space();
    const std::size_t index_start = at_;
    if (at_ >= text_.size() || !is_digit(text_[at_])) fail("expected a literal dimension");
    const std::int64_t index = literal();
    expect(")");
    if (index >= static_cast<std::int64_t>(found->second.size())) {
      fail_at(index_start, quote(word) + " has " + std::to_string(found->second.size()) +
                               " dimension(s), numbered from 0");
    }
    const std::string self = std::string(word) + ", " + std::to_string(index);
    if (std::find(expanding_.begin(), expanding_.end(), self) != expanding_.end())
      fail_at(start, "stride(" + self + ") needs itself");
    expanding_.push_back(self);
    const std::string_view outer_text = text_;
    const std::size_t outer_at = at_;
    whole(found->second[static_cast<std::size_t>(index)]);
    text_ = outer_text;
    at_ = outer_at;
    expanding_.pop_back();
  }

  void emit(Op op, std::int64_t operand, int depth_change) {
    if (out_.code_.size() >= kMaxInstructions) fail("the expression is too long");
    out_.code_.push_back({static_cast<std::uint8_t>(op), operand});
    depth_ += depth_change;
    if (depth_ > Expression::kMaxDepth) fail("nested too deeply");
    out_.depth_ = std::max(out_.depth_, depth_);
  }
  std::size_t jump(Op op, int depth_change) {
    emit(op, 0, depth_change);
    return out_.code_.size() - 1;
  }
  void land(std::size_t jump) { out_.code_[jump].operand = static_cast<std::int64_t>(out_.code_.size()); }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool peek_end() {
    skip_space();
    return at_ == text_.size();
  }
  bool take(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail("expected '" + std::string(token) + "'");
  }

  [[noreturn]] void unknown(std::string_view word, std::size_t start) {
    if (const auto found = symbols_.unavailable.find(word); found != symbols_.unavailable.end()) {
      fail_at(start, quote(word) + " cannot be used here: " + found->second);
    }
    std::vector<std::string> known, shown;
    for (const auto& [name, slot] : symbols_.slots) shown.push_back(name);
    for (const auto& [name, value] : symbols_.constants) {
      known.push_back(name);
      if (!dtype_from(name)) shown.push_back(name);
    }
    known.insert(known.end(), shown.begin(), shown.end());
    fail_at(start, "unknown name " + quote(word) + base::did_you_mean(word, known) +
                       "; known: " + base::join(shown, " ") + (shown.empty() ? "" : " ") + "and the dtypes");
  }
  [[noreturn]] void fail(const std::string& message) { fail_at(at_, message); }
  [[noreturn]] void fail_at(std::size_t at, const std::string& message) {
    throw Error(Errc::manifest, std::string(where_) + ": expression " + quote(text_) + ", column " +
                                    std::to_string(at + 1) + ": " + message);
  }

  const Symbols& symbols_;
  std::string_view where_, text_;
  std::size_t at_ = 0;
  int nesting_ = 0, depth_ = 0;
  std::vector<std::string> expanding_;  ///< stride() calls under way
  Expression out_;
};

Expression Expression::compile(std::string_view text, const Symbols& symbols, std::string_view where) {
  return ExpressionCompiler(symbols, where).run(text);
}

bool is_reserved_name(std::string_view name) noexcept {
  constexpr std::string_view words[] = {"arch",   "dev",  "occupancy", "sizeof",  "align",
                                        "stride", "true", "false",     "template"};
  return dtype_from(name) || std::find(std::begin(words), std::end(words), name) != std::end(words) ||
         std::any_of(std::begin(kFunctions), std::end(kFunctions),
                     [&](const Function& f) { return f.name == name; });
}

}  // namespace kiln::source
