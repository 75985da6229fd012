#include "expression/expression.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/quote.hpp"
#include "expression/code.hpp"
#include "kiln/dtype.hpp"
#include "kiln/error.hpp"

namespace kiln::source {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::uint64_t kMaxAlignment = 4096;

/// Arithmetic that has no result. evaluate() catches it, because it knows the expression's text.
struct Fault {
  const char* what;
};
constexpr Fault kOverflow{"overflow"};

std::int64_t multiply(std::int64_t a, std::int64_t b) {
  std::int64_t out;
  return __builtin_mul_overflow(a, b, &out) ? throw kOverflow : out;
}
std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t out;
  return __builtin_add_overflow(a, b, &out) ? throw kOverflow : out;
}
std::int64_t subtract(std::int64_t a, std::int64_t b) {
  std::int64_t out;
  return __builtin_sub_overflow(a, b, &out) ? throw kOverflow : out;
}
void check_division(std::int64_t a, std::int64_t b) {
  if (b == 0) throw Fault{"division by zero"};
  if (a == kMin && b == -1) throw kOverflow;
}
std::int64_t shift(Op op, std::int64_t a, std::int64_t b) {
  if (b < 0 || b > 63) throw Fault{"shift outside 0..63"};
  if (op == Op::shift_right) return a >> b;
  const auto out = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << b);
  return out >> b == a ? out : throw kOverflow;
}
std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  check_division(a, b);
  return a / b + (a % b != 0 && (a < 0) == (b < 0));
}
std::int64_t gcd(std::int64_t a, std::int64_t b) {
  if (a == kMin || b == kMin) throw kOverflow;
  return std::gcd(a, b);
}
std::int64_t next_pow2(std::int64_t a) {
  if (a < 0) throw Fault{"next_pow2 of a negative number"};
  if (a > std::int64_t{1} << 62) throw kOverflow;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(a)));
}
std::int64_t log2(std::int64_t a) {
  if (a <= 0) throw Fault{"log2 of a number that is not positive"};
  return std::bit_width(static_cast<std::uint64_t>(a)) - 1;
}
std::int64_t size_of_ordinal(std::int64_t a) {
  if (a < 0 || a >= kDtypeCount) throw Fault{"sizeof of a value that is not a dtype"};
  return static_cast<std::int64_t>(size_of(static_cast<Dtype>(a)));
}
std::int64_t alignment(std::int64_t a) {
  const std::uint64_t bits = static_cast<std::uint64_t>(a) | kMaxAlignment;  // null has every alignment
  return static_cast<std::int64_t>(bits & -bits);
}

std::int64_t unary(Op op, std::int64_t a) {
  switch (op) {
    case Op::negate:
      return subtract(0, a);
    case Op::complement:
      return ~a;
    case Op::logical_not:
      return a == 0;
    case Op::to_bool:
      return a != 0;
    case Op::next_pow2:
      return next_pow2(a);
    case Op::log2:
      return log2(a);
    case Op::size_of:
      return size_of_ordinal(a);
    case Op::alignment:
      return alignment(a);
    default:
      throw Fault{"bad instruction"};
  }
}

[[gnu::always_inline]] inline std::int64_t binary(Op op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case Op::multiply:
      return multiply(a, b);
    case Op::divide:
      return check_division(a, b), a / b;
    case Op::remainder:
      return check_division(a, b), a % b;
    case Op::add:
      return add(a, b);
    case Op::subtract:
      return subtract(a, b);
    case Op::shift_left:
    case Op::shift_right:
      return shift(op, a, b);
    case Op::less:
      return a < b;
    case Op::less_equal:
      return a <= b;
    case Op::greater:
      return a > b;
    case Op::greater_equal:
      return a >= b;
    case Op::equal:
      return a == b;
    case Op::not_equal:
      return a != b;
    case Op::bit_and:
      return a & b;
    case Op::bit_xor:
      return a ^ b;
    case Op::bit_or:
      return a | b;
    case Op::minimum:
      return std::min(a, b);
    case Op::maximum:
      return std::max(a, b);
    case Op::ceil_div:
      return ceil_div(a, b);
    case Op::round_up:
      return multiply(ceil_div(a, b), b);
    case Op::gcd:
      return gcd(a, b);
    case Op::ceil_shift:
      return (a >> b) + ((a & ((std::int64_t{1} << b) - 1)) != 0);
    default:
      throw Fault{"bad instruction"};
  }
}

}  // namespace

std::optional<std::int64_t> Expression::constant_value() const noexcept {
  if (code_.size() != 1 || code_[0].op != static_cast<std::uint8_t>(Op::push)) return std::nullopt;
  return code_[0].operand;
}

std::optional<int> Expression::only_slot() const noexcept {
  if (code_.size() != 1 || code_.front().op != static_cast<std::uint8_t>(Op::load)) return std::nullopt;
  return static_cast<int>(code_.front().operand);
}

bool Expression::same_code(const Expression& other) const noexcept {
  return std::equal(code_.begin(), code_.end(), other.code_.begin(), other.code_.end(),
                    [](const Instruction& a, const Instruction& b) {
                      return a.op == b.op && a.operand == b.operand && a.from == b.from;
                    });
}

Expression Expression::constant(std::int64_t value) {
  Expression out;
  out.text_ = std::to_string(value);
  out.code_.push_back({static_cast<std::uint8_t>(Op::push), value, 0});
  out.depth_ = 1;
  out.set_reads({});
  return out;
}

std::int64_t Expression::evaluate(std::span<const std::int64_t> slots) const {
  if (slots.size() < slots_needed_) [[unlikely]]
    refuse(slots.size());
  const Instruction* const code = code_.data();
  const bool short_and_plain = code_.size() <= 2 && code[0].op == static_cast<std::uint8_t>(Op::load);
  try {
    if (!short_and_plain) return run(slots);
    const std::int64_t value = slots[static_cast<std::size_t>(code[0].operand)];
    if (code_.size() == 1) return value;
    if (static_cast<From>(code[1].from) != From::immediate) return run(slots);
    return binary(static_cast<Op>(code[1].op), value, code[1].operand);  // "rows >= 0", "ceil_div(rows, 4)"
  } catch (const Fault& fault) {
    throw Error(Errc::requirement, std::string(fault.what) + " in the expression " + base::quote(text_));
  }
}

std::int64_t Expression::run(std::span<const std::int64_t> slots) const {
  std::array<std::int64_t, kMaxDepth> below;  // the stack; its top is in a register
  std::size_t size = 0;
  std::int64_t top = 0;
  const Instruction* const code = code_.data();
  for (std::size_t at = 0, end = code_.size(); at < end;) {
    const Instruction& now = code[at++];
    const auto op = static_cast<Op>(now.op);
    const auto target = static_cast<std::size_t>(now.operand);
    if (op >= kFirstBinary) {
      const auto from = static_cast<From>(now.from);
      const std::int64_t left = from == From::stack ? below[--size] : top;
      const std::int64_t right = from == From::stack ? top : from == From::slot ? slots[target] : now.operand;
      top = binary(op, left, right);
      continue;
    }
    switch (op) {
      case Op::push:
        below[size++] = top;
        top = now.operand;
        break;
      case Op::load:
        below[size++] = top;
        top = slots[target];
        break;
      case Op::jump:
        at = target;
        break;
      case Op::jump_if_zero:
        if (top == 0) at = target;
        top = below[--size];
        break;
      case Op::and_then:
        if (top == 0)
          at = target;
        else
          top = below[--size];
        break;
      case Op::or_else:
        if (top != 0)
          top = 1, at = target;
        else
          top = below[--size];
        break;
      case Op::clamp:
        size -= 2;
        top = std::min(std::max(below[size], below[size + 1]), top);
        break;
      default:
        top = unary(op, top);
    }
  }
  return top;
}

std::int64_t away_from_zero(double number) noexcept {
  if (number != number) return kMin;
  const double whole = number < 0 ? std::floor(number) : std::ceil(number);
  if (whole >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  return whole < -0x1p63 ? kMin : static_cast<std::int64_t>(whole);
}

void Expression::refuse(std::size_t slots) const {
  if (code_.empty()) throw Error(Errc::internal, "an empty expression has no value");
  throw Error(Errc::internal, "expression " + base::quote(text_) + " reads slot " +
                                  std::to_string(reads_.back()) + " of " + std::to_string(slots));
}

void Expression::set_reads(std::vector<int> slots) {
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  reads_ = std::move(slots);
  slots_needed_ = reads_.empty() ? 0 : static_cast<std::size_t>(reads_.back()) + 1;
}

}  // namespace kiln::source
