#include "runtime/operator/arguments.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/launch/recipe.hpp"

namespace kiln::runtime {
namespace {

using source::BindArgument;
using ArgumentKind = source::ArgumentType::Kind;

kiln_arg_type launch_type(ArgumentKind kind) noexcept {
  switch (kind) {
    case ArgumentKind::i32:
      return {KILN_ARG_SIGNED, 4};
    case ArgumentKind::i64:
      return {KILN_ARG_SIGNED, 8};
    case ArgumentKind::u32:
      return {KILN_ARG_UNSIGNED, 4};
    case ArgumentKind::u64:
      return {KILN_ARG_UNSIGNED, 8};
    case ArgumentKind::f32:
    case ArgumentKind::f64:
      return {KILN_ARG_FLOAT, 8};
    default:
      return {KILN_ARG_POINTER, 8};
  }
}

}  // namespace

ArgumentWriter::ArgumentWriter(const OperandReader& reader, const source::Manifest& manifest,
                               const source::BindSpec& spec)
    : reader_(reader), manifest_(manifest), spec_(spec) {
  for (std::size_t i = 0; i < spec.arguments.size(); ++i) {
    types_[i] = launch_type(manifest.arguments[i].type.kind);
    if (spec.arguments[i].kind != BindArgument::Kind::left_out || !manifest.arguments[i].optional)
      count_ = i + 1;
  }
}

void ArgumentWriter::write_addresses(CallFrame& frame) const {
  for (std::size_t i = 0; i < count_; ++i) {
    const BindArgument& a = spec_.arguments[i];
    if (a.kind != BindArgument::Kind::tensor) continue;
    const auto from = static_cast<std::size_t>(a.operand);
    const kiln_tensor* const t = frame.tensors[from];
    frame.storage[i] = t ? address_of(*t, from) : 0;
  }
}

void ArgumentWriter::put_integer(std::size_t i, std::int64_t value, CallFrame& frame) const {
  const source::ArgumentSpec& a = manifest_.arguments[i];
  if (!fits(a.type.kind, value)) [[unlikely]]
    reader_.fail("argument " + a.name + " of the kernel = " + std::to_string(value) + " does not fit " +
                 a.type.to_string(manifest_.parameters));
  frame.slots[static_cast<std::size_t>(manifest_.slots.argument_slot(static_cast<int>(i)))] = value;
  frame.storage[i] = static_cast<std::uint64_t>(value);
}

void ArgumentWriter::take_number(std::size_t i, CallFrame& frame) const {
  const BindArgument& a = spec_.arguments[i];
  const auto from = static_cast<std::size_t>(a.operand);
  const source::BindOperand& o = spec_.operands[from];
  if (o.kind == source::BindOperand::Kind::numbers ? frame.lists[from] != nullptr
                                                   : frame.is_given(from) || o.number_fallback) {
    frame.data[i] =
        o.kind == source::BindOperand::Kind::numbers ? &frame.lists[from][a.index] : &frame.numbers[from];
    return;
  }
  const double fallback = manifest_.arguments[i].float_value.value_or(0);
  std::memcpy(&frame.storage[i], &fallback, sizeof fallback);
}

void ArgumentWriter::write(CallFrame& frame) const {
  for (std::size_t i = 0; i < count_; ++i) {
    const BindArgument& a = spec_.arguments[i];
    frame.data[i] = &frame.storage[i];
    switch (a.kind) {
      case BindArgument::Kind::integer:
        put_integer(i, a.value.evaluate(frame.slots), frame);
        break;
      case BindArgument::Kind::number:
        take_number(i, frame);
        break;
      default:
        frame.storage[i] = 0;
    }
  }
  // Arguments that no operand gives, and that cannot be left out because later ones are given.
  for (std::size_t i = 0; i < count_; ++i) {
    const source::ArgumentSpec& spec = manifest_.arguments[i];
    if (spec_.arguments[i].kind != BindArgument::Kind::left_out) continue;
    if (spec.float_value)
      std::memcpy(&frame.storage[i], &*spec.float_value, sizeof(double));
    else if (!spec.value.empty())
      put_integer(i, spec.value.evaluate(frame.slots), frame);
  }
}

bool ArgumentWriter::suits(const source::BindLayout& layout, const kiln_tensor& t,
                           const CallFrame& frame) const {
  if (layout.dense) return is_contiguous(t);
  const auto named = static_cast<int>(layout.strides.size());
  for (int i = 0; i + 1 < named && i < t.ndim; ++i) {
    const source::Expression& wanted = layout.strides[static_cast<std::size_t>(i)];
    const int at = t.ndim - 1 - i;
    if (wanted.empty() || t.shape[at] <= 1) continue;
    if (stride_of(t, at) != wanted.evaluate(frame.slots)) return false;
  }
  if (named == 0) return true;
  const Joined lead = join_leading(t, std::max(0, t.ndim - named + 1));
  const source::Expression& wanted = layout.strides.back();
  return lead.possible && (wanted.empty() || lead.extent <= 1 || lead.stride == wanted.evaluate(frame.slots));
}

}  // namespace kiln::runtime
