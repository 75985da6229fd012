// Integer expressions of the manifest. They are compiled once, and evaluated without allocation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expression/symbols.hpp"

namespace kiln::source {

/// The integer that stands for a floating-point argument in expressions. It is rounded away from zero, so
/// that a comparison with 0 gives the number's own result. A number that is out of range becomes the nearest
/// integer. NaN becomes the lowest integer.
std::int64_t away_from_zero(double number) noexcept;

/// An expression over 64-bit signed integers, with C's precedence and short-circuit evaluation. Functions and
/// rules are in docs/reference/manifest.md. Immutable, thread-safe.
class Expression {
 public:
  Expression() = default;
  /// Throws Error(manifest) that names `where`, the text, the column and what was expected. For an unknown
  /// name it lists the known names.
  static Expression compile(std::string_view text, const Symbols& symbols, std::string_view where);
  static Expression constant(std::int64_t value);

  /// Throws Error(requirement) with the expression's text when the arithmetic fails, such as "overflow" or
  /// "division by zero". `slots` must reach up to the highest slot of reads(); otherwise Error(internal).
  std::int64_t evaluate(std::span<const std::int64_t> slots) const;
  /// The slots that the expression reads, in ascending order without repeats.
  const std::vector<int>& reads() const noexcept { return reads_; }
  const std::string& text() const noexcept { return text_; }
  bool empty() const noexcept { return code_.empty(); }

  /// A shorter form of this expression, for calls whose slots equal `slots` wherever `known` is true. `known`
  /// and `slots` have the same length. Work that depends on known slots alone is done here, once. Values,
  /// faults and text stay as they were; reads() no longer has the known slots.
  Expression folded(std::span<const std::int64_t> slots, const std::vector<bool>& known) const;
  /// True when both have the same instructions. Two expressions that always give the same
  /// values may still differ.
  bool same_code(const Expression& other) const noexcept;
  /// The expression's value when it is a single constant, so that nothing has to be evaluated.
  std::optional<std::int64_t> constant_value() const noexcept;
  /// The slot whose value the expression is, when it is nothing else.
  std::optional<int> only_slot() const noexcept;

 private:
  struct Instruction {
    std::uint8_t op = 0;
    std::int64_t operand = 0;
    std::uint8_t from = 0;  ///< where the right operand of a binary operator is (code.hpp)
  };
  friend class ExpressionCompiler;
  friend class ExpressionFolder;
  std::int64_t run(std::span<const std::int64_t> slots) const;
  [[noreturn]] void refuse(std::size_t slots) const;
  /// Takes the slots that `code_` reads, in any order and with repeats.
  void set_reads(std::vector<int> slots);

  std::string text_;
  std::vector<Instruction> code_;
  std::vector<int> reads_;
  /// Slots that evaluate() needs; an empty expression refuses any number of them.
  std::size_t slots_needed_ = SIZE_MAX;
  int depth_ = 0;  ///< stack entries needed; compile() refuses more than kMaxDepth
  static constexpr int kMaxDepth = 64;
};

/// True for names that expressions already give a meaning, such as functions, dtypes and "arch". Nothing in a
/// manifest may have such a name.
bool is_reserved_name(std::string_view name) noexcept;

}  // namespace kiln::source
