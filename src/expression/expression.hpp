// Integer expressions of the manifest: compiled once, evaluated without allocation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "expression/symbols.hpp"

namespace kiln::source {

/// What expressions know of a floating-point argument: rounded away from zero, so that comparisons with 0 are
/// those of the number itself. NaN and what no integer holds: the farthest integer, NaN the lowest.
std::int64_t away_from_zero(double number) noexcept;

/// 64-bit signed, C precedence, short-circuit; functions and rules in docs/writing-templates.md. Immutable,
/// thread-safe.
class Expression {
 public:
  Expression() = default;
  /// Throws Error(manifest) naming `where`, the text, the column and what was expected (an unknown name lists
  /// what is known).
  static Expression compile(std::string_view text, const Symbols& symbols, std::string_view where);
  static Expression constant(std::int64_t value);

  /// Throws Error(requirement) "overflow", "division by zero" with the expression's text.
  std::int64_t evaluate(std::span<const std::int64_t> slots) const;
  /// Slots that it reads, ascending, each once.
  const std::vector<int>& reads() const noexcept { return reads_; }
  const std::string& text() const noexcept { return text_; }
  bool empty() const noexcept { return code_.empty(); }

  /// The same expression for callers whose slots agree with `slots` wherever `known` is true (as long as
  /// `slots`): what follows from those is worked out once, and the rest takes fewer instructions. Values,
  /// faults and text are those of the original; reads() no longer has the known slots.
  Expression folded(std::span<const std::int64_t> slots, const std::vector<bool>& known) const;
  /// Whether both do the same with the same slots, as far as their instructions tell.
  bool same_code(const Expression& other) const noexcept;
  /// Its value when that is the same for all slots, and nothing has to be evaluated.
  std::optional<std::int64_t> constant_value() const noexcept;

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
  /// Of what `code_` reads, in any order.
  void set_reads(std::vector<int> slots);

  std::string text_;
  std::vector<Instruction> code_;
  std::vector<int> reads_;
  std::size_t slots_needed_ = SIZE_MAX;  ///< that evaluate() must be given; an empty expression has no value
  int depth_ = 0;                        ///< stack needed; compile refuses more than kMaxDepth
  static constexpr int kMaxDepth = 64;
};

/// Names with a meaning of their own in expressions, which nothing in a manifest may be called: functions,
/// dtypes, "arch", ...
bool is_reserved_name(std::string_view name) noexcept;

}  // namespace kiln::source
