// The instructions that expressions are compiled to. Private to the folder.
#pragma once

#include <cstdint>
#include <string_view>

namespace kiln::source {

/// A stack machine: operands are popped, the result is pushed.
enum class Op : std::uint8_t {
  push,          ///< operand
  load,          ///< slot `operand`
  jump,          ///< to instruction `operand`
  jump_if_zero,  ///< pops
  and_then,      ///< zero on top: stays as the result, jump; else pops
  or_else,       ///< nonzero on top: becomes 1, jump; else pops
  clamp,
  negate,
  complement,
  logical_not,
  to_bool,
  next_pow2,
  log2,
  size_of,    ///< of a dtype ordinal
  alignment,  ///< largest power of two that divides, at most 4096
  multiply,   ///< the first of the binary operators: all that follow are
  divide,
  remainder,
  add,
  subtract,
  shift_left,
  shift_right,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  bit_and,
  bit_xor,
  bit_or,
  minimum,
  maximum,
  ceil_div,
  round_up,
  gcd,
  ceil_shift,  ///< ceil_div by two to the power of the right operand, 1..62; made by folding
};
inline constexpr Op kFirstBinary = Op::multiply;

/// Where the right operand of a binary operator comes from. Compiling gives `stack` only.
enum class From : std::uint8_t {
  stack,
  immediate,  ///< `operand` itself
  slot,       ///< slot `operand`
};

struct Function {
  std::string_view name;
  Op op;
  int arguments;  ///< -1: two or more, folded from the left
};

/// sizeof, align and stride take names, not values, and are no part of this table.
inline constexpr Function kFunctions[] = {
    {"min", Op::minimum, -1},        {"max", Op::maximum, -1},      {"clamp", Op::clamp, 3},
    {"ceil_div", Op::ceil_div, 2},   {"round_up", Op::round_up, 2}, {"gcd", Op::gcd, 2},
    {"next_pow2", Op::next_pow2, 1}, {"log2", Op::log2, 1},
};

}  // namespace kiln::source
