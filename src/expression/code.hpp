// The instructions that expressions are compiled to. Private to the folder.
#pragma once

#include <cstdint>
#include <string_view>

namespace kiln::source {

/// A stack machine: operands are popped, the result is pushed.
enum class Op : std::uint8_t {
  push,          ///< pushes `operand`
  load,          ///< pushes slot `operand`
  jump,          ///< goes to instruction `operand`
  jump_if_zero,  ///< pops; goes to instruction `operand` when the value was 0
  and_then,      ///< zero on top: jumps and keeps it as the result; otherwise pops
  or_else,       ///< nonzero on top: jumps with 1 as the result; otherwise pops
  clamp,
  negate,
  complement,
  logical_not,
  to_bool,
  next_pow2,
  log2,
  size_of,    ///< bytes of a dtype, which is given by its ordinal
  alignment,  ///< largest power of two, at most 4096, that divides the value
  multiply,   ///< the first binary operator: all that follow are binary
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
  ceil_shift,  ///< ceil_div by two to the power of the right operand (1..62); only folding makes it
};
inline constexpr Op kFirstBinary = Op::multiply;

/// Where the right operand of a binary operator comes from. The compiler emits `stack` only;
/// folding emits the rest.
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

/// sizeof, align and stride take names, not values, so they are not in this table.
inline constexpr Function kFunctions[] = {
    {"min", Op::minimum, -1},        {"max", Op::maximum, -1},      {"clamp", Op::clamp, 3},
    {"ceil_div", Op::ceil_div, 2},   {"round_up", Op::round_up, 2}, {"gcd", Op::gcd, 2},
    {"next_pow2", Op::next_pow2, 1}, {"log2", Op::log2, 1},
};

}  // namespace kiln::source
