// Partial evaluation: work that depends only on values known before the first launch is not
// repeated at each launch.
//
// Instructions are taken in order. A stack holds what each of them would leave: a constant, or the code
// that computes the value. Only constants without a fault are folded, so a division by zero still fails
// where and when it is evaluated. Jumps lead forward and nest, because compile.cpp emits no others; so
// branches fold by recursion.
#include <bit>
#include <cstdint>

#include "expression/code.hpp"
#include "expression/expression.hpp"
#include "kiln/error.hpp"

namespace kiln::source {
namespace {

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

bool gives_boolean(Op op) {
  return (op >= Op::less && op <= Op::not_equal) || op == Op::logical_not || op == Op::to_bool;
}

std::size_t operands_of(Op op) { return op >= kFirstBinary ? 2 : op == Op::clamp ? 3 : 1; }

/// True when `x op n` is x.
bool leaves_as_is(Op op, std::int64_t n) {
  switch (op) {
    case Op::multiply:
    case Op::divide:
    case Op::ceil_div:
    case Op::round_up:
      return n == 1;
    case Op::add:
    case Op::subtract:
    case Op::shift_left:
    case Op::shift_right:
      return n == 0;
    default:
      return false;
  }
}

}  // namespace

class ExpressionFolder {
 public:
  using Instruction = Expression::Instruction;

  ExpressionFolder(const std::vector<Instruction>& in, std::span<const std::int64_t> slots,
                   const std::vector<bool>& known)
      : in_(in), slots_(slots), known_(known) {}

  std::vector<Instruction> run() {
    fold(0, in_.size());
    return std::move(out_);
  }

 private:
  /// A value on the stack of the evaluation.
  struct Operand {
    std::size_t start;                  ///< index in out_ of its first instruction
    std::optional<std::int64_t> value;  ///< its value, when no slot can change it
    bool boolean;                       ///< 0 or 1
  };

  void fold(std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      const Instruction& now = in_[at++];
      const auto op = static_cast<Op>(now.op);
      const auto target = static_cast<std::size_t>(now.operand);
      if (op == Op::push) {
        constant(now.operand);
      } else if (op == Op::load && known_[target]) {
        constant(slots_[target]);
      } else if (op == Op::load) {
        operands_.push_back({out_.size(), std::nullopt, false});
        emit(op, now.operand);
      } else if (op == Op::jump_if_zero) {
        at = choice(at, target);
      } else if (op == Op::and_then || op == Op::or_else) {
        at = short_circuit(op, at, target);
      } else {
        apply(op);
      }
    }
  }

  /// The instructions are: condition, jump_if_zero OTHERWISE, then, jump END, OTHERWISE: otherwise, END:
  std::size_t choice(std::size_t then, std::size_t otherwise) {
    const auto end = static_cast<std::size_t>(in_[otherwise - 1].operand);
    const Operand condition = operands_.back();
    if (condition.value) {
      drop();
      *condition.value != 0 ? fold(then, otherwise - 1) : fold(otherwise, end);
      return end;
    }
    operands_.pop_back();
    const std::size_t to_otherwise = jump(Op::jump_if_zero);
    fold(then, otherwise - 1);
    const bool boolean = pop().boolean;
    const std::size_t to_end = jump(Op::jump);
    land(to_otherwise);
    fold(otherwise, end);
    const bool also_boolean = pop().boolean;
    land(to_end);
    operands_.push_back({condition.start, std::nullopt, boolean && also_boolean});
    return end;
  }

  /// The instructions are: left, and_then END, right, to_bool, END:
  std::size_t short_circuit(Op op, std::size_t right, std::size_t end) {
    const bool is_and = op == Op::and_then;
    const Operand left = operands_.back();
    if (left.value) {
      drop();
      if ((*left.value != 0) == is_and)
        fold(right, end);
      else
        constant(is_and ? 0 : 1);
      return end;
    }
    operands_.pop_back();
    const std::size_t to_end = jump(op);
    fold(right, end);
    const Operand folded = operands_.back();
    if (folded.value && (*folded.value != 0) == is_and) {  // x && 1, x || 0
      drop();
      out_.pop_back();
      operands_.push_back(left);
      apply(Op::to_bool);
      return end;
    }
    operands_.pop_back();
    land(to_end);
    operands_.push_back({left.start, std::nullopt, true});
    return end;
  }

  void apply(Op op) {
    const std::size_t count = operands_of(op);
    const std::vector<Operand> taken(operands_.end() - static_cast<std::ptrdiff_t>(count), operands_.end());
    if (const auto value = computed(op, taken)) {
      for (std::size_t i = 0; i < count; ++i) drop();
      return constant(*value);
    }
    const Operand last = operands_.back();
    const std::size_t start = taken.front().start;
    if (op == Op::to_bool && last.boolean) return;
    if (count != 2 || !(last.value || is_load(last))) {
      emit(op, 0);
    } else if (last.value && leaves_as_is(op, *last.value)) {
      drop();
      return;
    } else {
      const std::int64_t right = out_.back().operand;  // the operand of the push or load
      out_.pop_back();
      last.value ? emit_immediate(op, right) : emit(op, right, From::slot);
    }
    operands_.resize(operands_.size() - count);
    operands_.push_back({start, std::nullopt, gives_boolean(op)});
  }

  void emit_immediate(Op op, std::int64_t n) {
    if (op == Op::ceil_div && is_power_of_two(n)) {
      emit(Op::ceil_shift, std::countr_zero(static_cast<std::uint64_t>(n)), From::immediate);
      return;
    }
    const bool to_zero = (op == Op::equal || op == Op::not_equal) && n == 0;
    if (to_zero && !out_.empty()) {
      Instruction& before = out_.back();  // x % 8 == 0 is (x & 7) == 0, for negative x as well
      if (before.op == static_cast<std::uint8_t>(Op::remainder) &&
          before.from == static_cast<std::uint8_t>(From::immediate) && is_power_of_two(before.operand)) {
        before.op = static_cast<std::uint8_t>(Op::bit_and);
        --before.operand;
      }
    }
    emit(op, n, From::immediate);
  }

  /// The result for constant operands. Nothing when an operand is not constant or the operation faults.
  static std::optional<std::int64_t> computed(Op op, const std::vector<Operand>& operands) {
    Expression expression;
    for (const Operand& operand : operands) {
      if (!operand.value) return std::nullopt;
      expression.code_.push_back({static_cast<std::uint8_t>(Op::push), *operand.value, 0});
    }
    expression.code_.push_back({static_cast<std::uint8_t>(op), 0, 0});
    expression.set_reads({});
    try {
      return expression.evaluate({});
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  bool is_load(const Operand& operand) const {
    return operand.start + 1 == out_.size() && out_.back().op == static_cast<std::uint8_t>(Op::load);
  }
  void constant(std::int64_t value) {
    operands_.push_back({out_.size(), value, value == 0 || value == 1});
    emit(Op::push, value);
  }
  void emit(Op op, std::int64_t operand, From from = From::stack) {
    out_.push_back({static_cast<std::uint8_t>(op), operand, static_cast<std::uint8_t>(from)});
  }
  std::size_t jump(Op op) {
    emit(op, 0);
    return out_.size() - 1;
  }
  void land(std::size_t jump) { out_[jump].operand = static_cast<std::int64_t>(out_.size()); }
  Operand pop() {
    const Operand last = operands_.back();
    operands_.pop_back();
    return last;
  }
  /// Removes the last operand and its code.
  void drop() { out_.resize(pop().start); }

  const std::vector<Instruction>& in_;
  const std::span<const std::int64_t> slots_;
  const std::vector<bool>& known_;
  std::vector<Instruction> out_;
  std::vector<Operand> operands_;
};

Expression Expression::folded(std::span<const std::int64_t> slots, const std::vector<bool>& known) const {
  Expression out;
  out.text_ = text_;
  out.depth_ = depth_;
  out.code_ = ExpressionFolder(code_, slots, known).run();
  std::vector<int> reads;
  for (const Instruction& now : out.code_) {
    if (now.op == static_cast<std::uint8_t>(Op::load) || now.from == static_cast<std::uint8_t>(From::slot))
      reads.push_back(static_cast<int>(now.operand));
  }
  if (!empty()) out.set_reads(std::move(reads));
  return out;
}

}  // namespace kiln::source
