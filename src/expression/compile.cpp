// Pratt parser from text to instructions.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "expression/code.hpp"
#include "expression/cursor.hpp"
#include "expression/expression.hpp"
#include "kiln/dtype.hpp"

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

/// The binary operator at the beginning of `text`, or null.
const BinaryOperator* operator_at(std::string_view text) noexcept {
  if (text.empty() || std::string_view("|&=!<>^+-*/%").find(text[0]) == std::string_view::npos)
    return nullptr;
  const auto found = std::find_if(std::begin(kBinary), std::end(kBinary), [&](const BinaryOperator& o) {
    return o.text[0] == text[0] && (o.text.size() == 1 || (text.size() > 1 && o.text[1] == text[1]));
  });
  return found == std::end(kBinary) ? nullptr : found;
}

/// Limits the recursion of the parser, so that no text overflows its stack.
constexpr int kMaxNesting = 200;
/// stride() is expanded in place, so a chain of expansions could grow without limit.
constexpr std::size_t kMaxInstructions = 4096;

}  // namespace

class ExpressionCompiler {
 public:
  ExpressionCompiler(std::string_view text, const Symbols& symbols, std::string_view where)
      : symbols_(symbols), where_(where), in_(text, where) {
    out_.text_ = text;
    out_.code_.reserve(text.size() / 3 + 1);  // more than most expressions need
  }

  Expression run() {
    whole();
    out_.set_reads(std::move(reads_));
    return std::move(out_);
  }

 private:
  struct Nested {
    explicit Nested(ExpressionCompiler& in) : compiler(in) {
      if (++compiler.nesting_ > kMaxNesting) compiler.in_.fail("nested too deeply");
    }
    ~Nested() { --compiler.nesting_; }
    ExpressionCompiler& compiler;
  };

  void whole() {
    ternary();
    if (!in_.at_end()) in_.fail("expected an operator or the end");
  }

  void ternary() {
    const Nested nested(*this);
    binary(1);
    if (!in_.take("?")) return;
    const auto otherwise = jump(Op::jump_if_zero, -1);
    ternary();
    in_.expect(":");
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
      const BinaryOperator* found = operator_at(in_.rest());
      if (!found || found->precedence < least) return;
      in_.take(found->text);
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
    switch (const char next = in_.peek()) {
      case '-':
      case '!':
      case '~':
        in_.take({&next, 1});
        unary();
        return emit(next == '-' ? Op::negate : next == '!' ? Op::logical_not : Op::complement, 0, 0);
      case '+':
        in_.take("+");
        return unary();
      case '(':
        in_.take("(");
        ternary();
        return in_.expect(")");
      default:
        break;
    }
    if (in_.at_digit()) return emit(Op::push, in_.literal(), 1);
    if (!in_.at_letter()) in_.fail("expected a number, a name or '('");
    const std::size_t start = in_.position();
    const std::string_view word = in_.name();
    if (in_.take("(")) return call(word, start);
    load(word, start);
  }

  void load(std::string_view word, std::size_t start) {
    if (const int* slot = symbols_.slot(word)) {
      reads_.push_back(*slot);
      return emit(Op::load, *slot, 1);
    }
    if (const std::int64_t* constant = symbols_.constant(word)) return emit(Op::push, *constant, 1);
    unknown(word, start);
  }

  void call(std::string_view word, std::size_t start) {
    if (symbols_.tensors && is_in(TensorMeasures::kFunctions, word)) return tensor_measure(word, start);
    if (word == "sizeof") return named(word, Op::size_of, "a dtype or a dtype parameter");
    if (word == "align") return named(word, Op::alignment, "a pointer argument");
    if (word == "stride") return stride();
    const auto found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                    [&](const Function& f) { return f.name == word; });
    if (found == std::end(kFunctions)) {
      std::vector<std::string> known = {"sizeof", "align", "stride"};
      for (const Function& f : kFunctions) known.emplace_back(f.name);
      in_.fail_at(start, "unknown function " + base::quote(word) + base::did_you_mean(word, known) +
                             "; known: " + base::join(known, " "));
    }
    const bool any = found->arguments < 0;
    int count = 0;
    if (!in_.take(")")) {
      do {
        ternary();
        ++count;
        if (any && count > 1) emit(found->op, 0, -1);
      } while (in_.take(","));
      in_.expect(")");
    }
    if (any ? count < 2 : count != found->arguments) {
      in_.fail_at(start, std::string(word) + " takes " +
                             (any ? "two or more values" : std::to_string(found->arguments) + " value(s)") +
                             ", not " + std::to_string(count));
    }
    if (!any) emit(found->op, 0, 1 - found->arguments);
  }

  void named(std::string_view function, Op op, const char* what) {
    const std::size_t start = in_.position();
    const std::string_view word = in_.name();
    if (!(op == Op::size_of ? symbols_.is_dtype(word) : symbols_.is_pointer(word))) {
      const bool exists = symbols_.slot(word) || symbols_.constant(word);
      if (!word.empty() && !exists) unknown(word, start);
      in_.fail_at(start, std::string(function) + " takes " + what +
                             (word.empty() ? "" : ", not " + base::quote(word)));
    }
    load(word, start);
    emit(op, 0, 0);
    in_.expect(")");
  }

  static bool is_in(const auto& words, std::string_view word) {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
  }

  void tensor_measure(std::string_view function, std::size_t start) {
    const std::string_view tensor = in_.name();
    std::optional<std::int64_t> index;
    if (in_.take(",")) {
      const bool negative = in_.take("-");
      if (!in_.at_digit()) in_.fail("expected a literal dimension");
      index = in_.literal();
      if (negative) index = -*index;
    }
    in_.expect(")");
    std::string problem;
    const int slot = symbols_.tensors->slot(function, tensor, index, problem);
    if (slot < 0) in_.fail_at(start, problem);
    reads_.push_back(slot);
    emit(Op::load, slot, 1);
  }

  /// The declared stride expression of argument x, compiled in place.
  void stride() {
    const Nested nested(*this);
    const std::size_t start = in_.position();
    const std::string_view word = in_.name();
    const std::vector<std::string>* strides = symbols_.strides_of(word);
    if (!strides) {
      if (!word.empty() && !symbols_.slot(word)) unknown(word, start);
      in_.fail_at(start, "stride takes an argument with a declared shape" +
                             (word.empty() ? "" : ", not " + base::quote(word)));
    }
    in_.expect(",");
    const std::size_t index_at = in_.position();
    if (!in_.at_digit()) in_.fail("expected a literal dimension");
    const std::int64_t index = in_.literal();
    in_.expect(")");
    if (index >= static_cast<std::int64_t>(strides->size())) {
      in_.fail_at(index_at, base::quote(word) + " has " + std::to_string(strides->size()) +
                                " dimension(s), numbered from 0");
    }
    const std::string self = std::string(word) + ", " + std::to_string(index);
    if (std::find(expanding_.begin(), expanding_.end(), self) != expanding_.end()) {
      in_.fail_at(start, "stride(" + self + ") needs itself");
    }
    expanding_.push_back(self);
    const ExpressionCursor outer = in_;
    in_ = ExpressionCursor((*strides)[static_cast<std::size_t>(index)], where_);
    whole();
    in_ = outer;
    expanding_.pop_back();
  }

  void emit(Op op, std::int64_t operand, int depth_change) {
    if (out_.code_.size() >= kMaxInstructions) in_.fail("the expression is too long");
    out_.code_.push_back({static_cast<std::uint8_t>(op), operand, 0});
    depth_ += depth_change;
    if (depth_ > Expression::kMaxDepth) in_.fail("nested too deeply");
    out_.depth_ = std::max(out_.depth_, depth_);
  }
  std::size_t jump(Op op, int depth_change) {
    emit(op, 0, depth_change);
    return out_.code_.size() - 1;
  }
  void land(std::size_t jump) { out_.code_[jump].operand = static_cast<std::int64_t>(out_.code_.size()); }

  [[noreturn]] void unknown(std::string_view word, std::size_t start) {
    if (const auto why = symbols_.why_unavailable(word))
      in_.fail_at(start, base::quote(word) + " cannot be used here: " + *why);
    std::vector<std::string> known, shown = symbols_.slot_names();
    for (std::string& name : symbols_.constant_names()) (dtype_from(name) ? known : shown).push_back(name);
    known.insert(known.end(), shown.begin(), shown.end());
    in_.fail_at(start, "unknown name " + base::quote(word) + base::did_you_mean(word, known) + "; known: " +
                           base::join(shown, " ") + (shown.empty() ? "" : " ") + "and the dtypes");
  }

  const Symbols& symbols_;
  const std::string_view where_;
  ExpressionCursor in_;
  int nesting_ = 0, depth_ = 0;
  std::vector<int> reads_;
  std::vector<std::string> expanding_;  ///< stride() calls under way
  Expression out_;
};

Expression Expression::compile(std::string_view text, const Symbols& symbols, std::string_view where) {
  return ExpressionCompiler(text, symbols, where).run();
}

bool is_reserved_name(std::string_view name) noexcept {
  constexpr std::string_view words[] = {"arch",   "dev",  "occupancy", "sizeof",   "align",
                                        "stride", "true", "false",     "template", "tuned"};
  return dtype_from(name) || std::find(std::begin(words), std::end(words), name) != std::end(words) ||
         std::any_of(std::begin(kFunctions), std::end(kFunctions),
                     [&](const Function& f) { return f.name == name; });
}

}  // namespace kiln::source
