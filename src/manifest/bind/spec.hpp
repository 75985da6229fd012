// [bind]: how the inputs of a call become parameters, arguments and outputs. docs/reference/manifest.md has the
// grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "expression/expression.hpp"
#include "kiln/dtype.hpp"

namespace kiln::source {

/// Limits of a call: inputs and outputs together, and dimensions of a tensor.
inline constexpr std::size_t kMaxOperands = 64;
inline constexpr int kMaxRank = 8;

/// The element type that a signature gives a tensor. None of these: any dtype.
struct BindDtype {
  std::optional<Dtype> fixed;
  int parameter = -1;   ///< a dtype parameter
  Expression computed;  ///< of an output: the ordinal of a dtype
};

/// "[..., heads, D]". `leading`: further dimensions may stand before the named ones. They are equal in all
/// operands of a call.
struct BindShape {
  bool leading = false;
  std::vector<Expression> extents;
};

/// An input or an output of an operator.
struct BindOperand {
  enum class Kind {
    tensor,
    integer,
    boolean,
    number,   ///< a floating-point number
    numbers,  ///< `count` floating-point numbers
    dtype,
    choice,  ///< a name of an enum or type parameter
  };
  std::string name;
  Kind kind = Kind::tensor;
  bool optional = false;            ///< a call may leave it out
  bool written = false;             ///< a tensor that the kernel writes to
  BindDtype dtype;                  ///< of a tensor
  std::vector<BindShape> shapes;    ///< of a tensor: it has one of them
  std::vector<Expression> strides;  ///< of an output that kiln allocates; empty: contiguous
  int parameter = -1;               ///< the parameter that a scalar gives; -1: none
  std::size_t count = 1;
  Expression fallback;                    ///< of an integer, boolean, dtype or choice
  std::optional<double> number_fallback;  ///< of a number
};

/// A number that the operands of a call have. Operands are inputs, then outputs.
struct BindMeasure {
  enum class Kind {
    present,         ///< 1 when the operand is given, else 0
    named,           ///< of `let`
    scalar,          ///< the value; a floating-point number is rounded away from zero
    dtype,           ///< the ordinal of a tensor's dtype
    rank,            ///< dimensions
    elements,        ///< product of all extents
    extent,          ///< of dimension `index`, which counts from the end when it is negative
    stride,          ///< of dimension `index`, in elements
    leading_extent,  ///< product of all extents but the last `index`
    leading_stride,  ///< stride of these dimensions, seen as one
  };
  Kind kind = Kind::present;
  int operand = 0;
  int index = 0;
  friend bool operator==(const BindMeasure&, const BindMeasure&) = default;
};

/// A number that `let` names. It may read earlier ones.
struct BindNamed {
  int slot = 0;
  Expression value;
};

/// A value of a parameter. A parameter that no entry gives takes its default.
struct BindParameter {
  int parameter = 0;
  Expression value;
  int unless_absent = -1;     ///< an operand: when it is absent, the parameter takes its default
  bool picks_member = false;  ///< `value` is the argument `by` of [family], and the parameter takes its edge
};

/// The value of a kernel argument.
struct BindArgument {
  enum class Kind { left_out, tensor, number, integer };
  Kind kind = Kind::left_out;
  int operand = -1;       ///< of a tensor or a number
  std::size_t index = 0;  ///< the number of `numbers`
  Expression value;       ///< of an integer
};

/// The memory layout that a kernel expects of a tensor.
struct BindLayout {
  int operand = 0;
  bool dense = false;  ///< contiguous
  /// Otherwise the stride of each dimension of the kernel's argument, the last first. All further dimensions of
  /// the tensor must be one dimension when they are seen together. Empty: any stride.
  std::vector<Expression> strides;
};

struct BindRequirement {
  Expression expression;
  std::string message;  ///< with {NAME}
};

/// One operator of a template. Expressions read the manifest's slots, and from `first_slot` on the measures.
/// Expressions of parameters, defaults and requirements read measures only.
struct BindSpec {
  std::string name, doc;
  std::string call, out;  ///< the signature, as in the manifest
  std::vector<BindOperand> operands;
  std::size_t inputs = 0;   ///< operands from here on are outputs
  std::size_t results = 0;  ///< outputs that a call returns; further ones are scratch memory
  int leading = -1;         ///< the operand whose leading dimensions an output with "..." has
  int first_slot = 0;
  std::vector<BindMeasure> measures;
  std::vector<std::string> measure_names;  ///< for messages: "H", "dim(x, -1)"
  std::vector<BindNamed> named;
  std::vector<BindParameter> parameters;
  std::vector<BindArgument> arguments;  ///< one for each argument of the kernel
  std::vector<BindLayout> layouts;
  std::vector<BindRequirement> requirements;
};

}  // namespace kiln::source
