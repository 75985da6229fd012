#include "runtime/operator/operands.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "expression/braces.hpp"
#include "kiln/error.hpp"
#include "manifest/parameter_value.hpp"

namespace kiln::runtime {
namespace {

using source::BindMeasure;
using source::BindOperand;
using OperandKind = BindOperand::Kind;

const char* operand_kind(OperandKind kind) {
  constexpr const char* names[] = {"a tensor", "an integer", "a boolean",           "a number",
                                   "numbers",  "a dtype",    "the name of a choice"};
  return names[static_cast<std::size_t>(kind)];
}

const char* given_kind(std::int32_t kind) {
  constexpr const char* names[] = {"nothing", "a tensor", "an integer", "a floating-point number",
                                   "a text",  "numbers"};
  return kind >= 0 && kind < 6 ? names[kind] : "an operand of an unknown kind";
}

/// True for the name of one of the operand's own dimensions, which it may have in any size.
bool names_extent_of(const source::BindSpec& spec, std::size_t i, const source::Expression& extent) {
  const std::vector<int>& reads = extent.reads();
  if (reads.size() != 1 || reads[0] < spec.first_slot) return false;
  const source::BindMeasure& measure = spec.measures[static_cast<std::size_t>(reads[0] - spec.first_slot)];
  return measure.kind == source::BindMeasure::Kind::extent && measure.operand == static_cast<int>(i);
}

/// The shapes that an operand may have, with the sizes of this call.
std::string expected_shapes(const source::BindSpec& spec, std::size_t i, const CallFrame& frame) {
  std::string out;
  for (const source::BindShape& shape : spec.operands[i].shapes) {
    out += (out.empty() ? "[" : " or [") + std::string(shape.leading ? "..." : "");
    bool first = !shape.leading;
    for (const source::Expression& extent : shape.extents) {
      out += (first ? "" : ", ") + extent.text();
      const std::string value = std::to_string(extent.evaluate(frame.slots));
      if (value != extent.text() && !names_extent_of(spec, i, extent)) out += " = " + value;
      first = false;
    }
    out += ']';
  }
  return out;
}

}  // namespace

OperandReader::OperandReader(const Target& target, const source::Manifest& manifest,
                             const source::BindSpec& spec)
    : target_(target), manifest_(manifest), spec_(spec) {
  if (spec.measures.size() > kMaxMeasures || manifest.slots.total() > kMaxSlots)
    throw Error(Errc::manifest, manifest.file + ": operator " + base::quote(spec.name) +
                                    " has too many names: " + std::to_string(spec.measures.size()) +
                                    " measures of operands, at most " + std::to_string(kMaxMeasures));
  // Scalars are measures too, and are put into their slots when they are read.
  const auto add = [&](bool inputs) {
    for (std::size_t i = 0; i < spec.measures.size(); ++i)
      if (spec.measures[i].kind != BindMeasure::Kind::scalar &&
          spec.measures[i].kind != BindMeasure::Kind::named &&
          (static_cast<std::size_t>(spec.measures[i].operand) < spec.inputs) == inputs)
        order_.push_back(i);
  };
  add(true);
  input_measures_ = order_.size();
  add(false);

  const auto slot_of = [&](const auto& all, const auto& wanted) {
    const auto found = std::find(all.begin(), all.end(), wanted);
    return found == all.end() ? -1 : spec.first_slot + static_cast<int>(found - all.begin());
  };
  for (std::size_t i = 0; i < spec.operands.size(); ++i) {
    const BindOperand& o = spec.operands[i];
    const int parameter = o.dtype.parameter;
    if (o.kind != OperandKind::tensor) {
      slots_[i] = slot_of(spec.measures, BindMeasure{BindMeasure::Kind::scalar, static_cast<int>(i), 0});
    } else if (i >= spec.inputs || parameter < 0) {
      slots_[i] = parameter;
    } else {
      slots_[i] = slot_of(spec.measure_names, manifest.parameters[static_cast<std::size_t>(parameter)].name);
      if (slots_[i] < 0) slots_[i] = parameter, late_.push_back(i);
    }
  }
}

void OperandReader::read(const kiln_call& call, CallFrame& frame) const {
  read_all(call, frame);
  take_measures(0, input_measures_, frame);
  take_fallbacks(frame);
  take_named(frame);
  for (std::size_t i = 0; i < spec_.inputs; ++i) {
    if (!frame.tensors[i]) continue;
    if (std::find(late_.begin(), late_.end(), i) == late_.end()) check_dtype(i, frame);
    check_shape(i, frame);
  }
  check_requirements(frame);
}

void OperandReader::read_outputs(CallFrame& frame) const {
  take_measures(input_measures_, order_.size(), frame);
}

void OperandReader::read_again(CallFrame& frame) const {
  take_measures(0, order_.size(), frame);
  take_named(frame);
}

void OperandReader::fail(const std::string& what) const {
  throw Error(Errc::invalid_argument, spec_.name + ": " + what);
}

void OperandReader::read_all(const kiln_call& call, CallFrame& frame) const {
  if (call.count > spec_.operands.size())
    fail(std::to_string(call.count) + " operands are given, expected (" + spec_.call + ") and (" + spec_.out +
         ')');
  if (call.count > 0 && !call.operands) fail("operands is null");
  for (std::size_t i = 0; i < spec_.operands.size(); ++i) {
    const kiln_operand none{};
    const kiln_operand& given = i < call.count ? call.operands[i] : none;
    frame.given |= std::uint64_t{given.kind != KILN_OPERAND_NONE} << i;
    if (operand(i).kind == OperandKind::tensor)
      read_tensor(i, given, frame);
    else
      read_scalar(i, given, frame);
  }
}

void OperandReader::read_tensor(std::size_t i, const kiln_operand& given, CallFrame& frame) const {
  frame.tensors[i] = nullptr;
  const BindOperand& o = operand(i);
  if (given.kind == KILN_OPERAND_NONE) {
    if (i < spec_.inputs && !o.optional) fail(o.name + " is not given");
    return;
  }
  if (given.kind != KILN_OPERAND_TENSOR || !given.tensor)
    fail(o.name + " is " + given_kind(given.kind) + ", expected a tensor");
  const kiln_tensor& t = *given.tensor;
  if (t.ndim < 0 || t.ndim > kMaxRank || (t.ndim > 0 && !t.shape))
    fail(o.name + " has " + std::to_string(t.ndim) + " dimensions, at most " + std::to_string(kMaxRank) +
         " are possible");
  constexpr int kCpu = 1, kCuda = 2;
  if (target_.context &&
      (t.device_type == kCpu || (t.device_type == kCuda && t.device_id != target_.device.ordinal)))
    fail(o.name + " lies on " +
         (t.device_type == kCpu ? std::string("the host") : "device " + std::to_string(t.device_id)) +
         ", expected device " + std::to_string(target_.device.ordinal));
  frame.tensors[i] = &t;
}

void OperandReader::read_scalar(std::size_t i, const kiln_operand& given, CallFrame& frame) const {
  const BindOperand& o = operand(i);
  const auto slot = [&]() -> std::int64_t& { return frame.slots[static_cast<std::size_t>(slots_[i])]; };
  frame.tensors[i] = nullptr, frame.lists[i] = nullptr;
  if (given.kind == KILN_OPERAND_NONE) {
    const bool has = !o.fallback.empty() || o.number_fallback || o.optional;
    if (!has) fail(o.name + " is not given");
    if (o.number_fallback) frame.numbers[i] = *o.number_fallback;
    if (o.kind != OperandKind::numbers)
      slot() = o.number_fallback ? source::away_from_zero(*o.number_fallback) : kNoValue;
    return;
  }
  if (o.kind == OperandKind::numbers) {
    if (given.kind != KILN_OPERAND_FLOATS || given.count < 0 ||
        static_cast<std::size_t>(given.count) != o.count)
      fail(o.name + " is " + given_kind(given.kind) + ", expected " + std::to_string(o.count) + " numbers");
    frame.lists[i] = given.numbers;
    return;
  }
  if (o.kind == OperandKind::number) {
    if (given.kind != KILN_OPERAND_FLOAT && given.kind != KILN_OPERAND_INTEGER)
      fail(o.name + " is " + given_kind(given.kind) + ", expected a number");
    frame.numbers[i] = given.kind == KILN_OPERAND_FLOAT ? given.number : static_cast<double>(given.integer);
    slot() = source::away_from_zero(frame.numbers[i]);
    return;
  }
  slot() = integer_of(i, given);
}

std::int64_t OperandReader::integer_of(std::size_t i, const kiln_operand& given) const {
  const BindOperand& o = operand(i);
  if (given.kind == KILN_OPERAND_TEXT && given.text && o.parameter >= 0) {
    const std::string_view text = given.count < 0
                                      ? std::string_view(given.text)
                                      : std::string_view(given.text, static_cast<std::size_t>(given.count));
    const auto& p = manifest_.parameters[static_cast<std::size_t>(o.parameter)];
    if (const auto value = source::parameter_value(p, text)) return *value;
    std::vector<std::string> names;
    for (const auto& choice : p.choices) names.push_back(choice.name);
    fail(o.name + " = " + base::quote(text) + " is not allowed" +
         base::did_you_mean(std::string(text), names) +
         (names.empty() ? "" : "; allowed: " + base::join(names, " ")));
  }
  if (given.kind != KILN_OPERAND_INTEGER || o.kind == OperandKind::choice)
    fail(o.name + " is " + given_kind(given.kind) + ", expected " + operand_kind(o.kind));
  if (o.kind == OperandKind::boolean && given.integer != 0 && given.integer != 1)
    fail(o.name + " = " + std::to_string(given.integer) + ", expected 0 or 1");
  if (o.kind == OperandKind::dtype && (given.integer < 0 || given.integer >= kDtypeCount))
    fail(o.name + " = " + std::to_string(given.integer) + " is no dtype");
  return given.integer;
}

void OperandReader::take_fallbacks(CallFrame& frame) const {
  for (std::size_t i = 0; i < spec_.inputs; ++i) {
    const BindOperand& o = operand(i);
    if (o.fallback.empty() || frame.is_given(i)) continue;
    frame.slots[static_cast<std::size_t>(slots_[i])] = o.fallback.evaluate(frame.slots);
  }
}

void OperandReader::take_named(CallFrame& frame) const {
  for (const source::BindNamed& named : spec_.named)
    frame.slots[static_cast<std::size_t>(named.slot)] = named.value.evaluate(frame.slots);
}

void OperandReader::take_measures(std::size_t from, std::size_t to, CallFrame& frame) const {
  std::int64_t* const slots = frame.slots.data() + spec_.first_slot;
  for (std::size_t i = from; i < to; ++i) slots[order_[i]] = measure_of(spec_.measures[order_[i]], frame);
}

std::int64_t OperandReader::measure_of(const BindMeasure& measure, const CallFrame& frame) const {
  using Kind = BindMeasure::Kind;
  const kiln_tensor* const t = frame.tensors[static_cast<std::size_t>(measure.operand)];
  if (measure.kind == Kind::present) return frame.is_given(static_cast<std::size_t>(measure.operand));
  if (!t) return measure.kind == Kind::dtype ? kNoValue : 0;
  const int at = measure.index < 0 ? t->ndim + measure.index : measure.index;
  const bool there = at >= 0 && at < t->ndim;
  const int lead = std::max(0, t->ndim - measure.index);
  switch (measure.kind) {
    case Kind::dtype:
      return dtype_of(*t);
    case Kind::rank:
      return t->ndim;
    case Kind::elements:
      return elements_of(*t);
    case Kind::extent:
      return there ? t->shape[at] : 0;
    case Kind::stride:
      return there ? stride_of(*t, at) : 0;
    case Kind::leading_extent:
      return join_leading(*t, lead).extent;
    case Kind::leading_stride:
      return join_leading(*t, lead).stride;
    default:
      return 0;
  }
}

bool OperandReader::has_shape(const kiln_tensor& t, const source::BindShape& shape,
                              const CallFrame& frame) const {
  const auto named = static_cast<int>(shape.extents.size());
  if (shape.leading ? t.ndim < named : t.ndim != named) return false;
  if (shape.leading && !has_leading(t, named, frame)) return false;
  for (int i = 0; i < named; ++i) {
    if (shape.extents[static_cast<std::size_t>(i)].evaluate(frame.slots) != t.shape[t.ndim - named + i])
      return false;
  }
  return true;
}

/// True when the dimensions before the last `named` ones equal the ones of the first tensor that has such.
bool OperandReader::has_leading(const kiln_tensor& t, int named, const CallFrame& frame) const {
  const auto from = static_cast<std::size_t>(spec_.leading);
  const kiln_tensor* const first = frame.tensors[from];
  if (!first || first == &t) return true;
  const int rank = first->ndim - static_cast<int>(operand(from).shapes[0].extents.size());
  return t.ndim - named == rank && std::equal(t.shape, t.shape + rank, first->shape);
}

void OperandReader::check_late_dtypes(const CallFrame& frame) const {
  for (const std::size_t i : late_)
    if (frame.tensors[i]) check_dtype(i, frame);
}

void OperandReader::check_tensor(std::size_t i, const CallFrame& frame) const {
  check_dtype(i, frame);
  check_shape(i, frame);
}

void OperandReader::check_dtype(std::size_t i, const CallFrame& frame) const {
  const BindOperand& o = operand(i);
  const kiln_tensor& t = *frame.tensors[i];
  const int have = dtype_of(t);
  if (have < 0) fail(o.name + " is " + described(t) + ": kiln has no such dtype");
  int want = o.dtype.fixed ? static_cast<int>(*o.dtype.fixed) : have;
  if (slots_[i] >= 0 || !o.dtype.computed.empty()) want = static_cast<int>(wanted_dtype(i, frame));
  if (have != want) fail(o.name + " is " + described(t) + ", expected " + std::string(kDtypeNames[want]));
}

void OperandReader::check_shape(std::size_t i, const CallFrame& frame) const {
  const BindOperand& o = operand(i);
  const kiln_tensor& t = *frame.tensors[i];
  const bool fits = std::any_of(o.shapes.begin(), o.shapes.end(),
                                [&](const source::BindShape& shape) { return has_shape(t, shape, frame); });
  if (!fits) fail_shape(i, frame);
  if (o.written && is_broadcast(t))
    fail(o.name + " is " + described(t) +
         ", and several of its elements have one address: it cannot be written to");
}

void OperandReader::fail_shape(std::size_t i, const CallFrame& frame) const {
  fail(operand(i).name + " is " + described(*frame.tensors[i]) + ", expected " +
       expected_shapes(spec_, i, frame));
}

void OperandReader::check_requirements(const CallFrame& frame) const {
  for (const source::BindRequirement& r : spec_.requirements)
    if (r.expression.evaluate(frame.slots) == 0) [[unlikely]]
      fail(source::fill_braces(r.message, [&](const std::string& name) {
        const auto found = std::find(spec_.measure_names.begin(), spec_.measure_names.end(), name);
        if (found == spec_.measure_names.end()) return '{' + name + '}';
        const auto i = static_cast<std::size_t>(found - spec_.measure_names.begin());
        return std::to_string(frame.slots[static_cast<std::size_t>(spec_.first_slot) + i]);
      }));
}

Dtype OperandReader::wanted_dtype(std::size_t i, const CallFrame& frame) const {
  const source::BindDtype& dtype = operand(i).dtype;
  if (dtype.fixed) return *dtype.fixed;
  const std::int64_t out = dtype.computed.empty() ? frame.slots[static_cast<std::size_t>(slots_[i])]
                                                  : dtype.computed.evaluate(frame.slots);
  if (out < 0 || out >= kDtypeCount) fail(operand(i).name + " would have the dtype " + std::to_string(out));
  return static_cast<Dtype>(out);
}

}  // namespace kiln::runtime
