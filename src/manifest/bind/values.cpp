#include "manifest/bind/values.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/bind/operands.hpp"
#include "manifest/bind/signature.hpp"

namespace kiln::source {
namespace {

using OperandKind = BindOperand::Kind;
using MeasureKind = BindMeasure::Kind;

BindArgument integer_argument(Expression value) {
  return {BindArgument::Kind::integer, -1, 0, std::move(value)};
}

}  // namespace

Expression ValueReader::compile(std::string_view key, const std::string& text, const Symbols& symbols) const {
  return Expression::compile(text, symbols, reader_.where(key));
}

void ValueReader::read_parameters() {
  std::map<int, BindParameter> found;
  if (const TomlValue* table = reader_.find("param")) {
    const TableReader given(*table, reader_.title() + " param", reader_.file());
    for (const auto& [name, value] : table->members) {
      const int p = parameter_index(manifest_, name);
      if (p < 0)
        given.fail(name, base::quote(name) + " is no parameter" +
                             base::did_you_mean(name, parameter_names(manifest_)) +
                             "; known: " + base::join(parameter_names(manifest_), " "));
      found[p] = {p, given.expression(name, call_), -1};
    }
  }
  for (std::size_t i = 0; i < out_.inputs; ++i) {
    const BindOperand& o = out_.operands[i];
    if (o.parameter < 0) continue;
    const bool may_miss = o.optional && o.fallback.empty();
    found.try_emplace(o.parameter, BindParameter{o.parameter, compile("call", o.name, call_),
                                                 may_miss ? static_cast<int>(i) : -1});
  }
  for (std::size_t i = 0; i < manifest_.parameters.size(); ++i) {
    const std::string& name = manifest_.parameters[i].name;
    const int p = static_cast<int>(i);
    if (const int* slot = call_.slot(name); slot && !found.contains(p)) {
      const int operand = out_.measures[static_cast<std::size_t>(*slot - out_.first_slot)].operand;
      found[p] = {p, compile("call", name, call_),
                  operand >= 0 && operand_at(out_, operand).optional ? operand : -1};
    }
    if (!found.contains(p) && manifest_.parameters[i].default_value.empty() && !is_given_by_family(i))
      reader_.fail("call", "parameter " + name + " has no default, and no input gives it; write it in param");
  }
  for (auto& [p, value] : found) out_.parameters.push_back(std::move(value));
}

void ValueReader::read_family() {
  if (!manifest_.family) return;
  const int parameter = manifest_.family->parameter;
  const auto after = std::find_if(out_.parameters.begin(), out_.parameters.end(),
                                  [&](const BindParameter& p) { return p.parameter >= parameter; });
  if (after != out_.parameters.end() && after->parameter == parameter) return;
  const auto by = static_cast<std::size_t>(manifest_.family->by);
  const Expression& value = out_.arguments[by].value;
  for (const int slot : value.reads()) {
    const auto i = static_cast<std::size_t>(slot - out_.first_slot);
    if (slot >= out_.first_slot && out_.measures[i].operand < static_cast<int>(out_.inputs)) continue;
    const std::string& name = manifest_.parameters[static_cast<std::size_t>(parameter)].name;
    reader_.fail("arg", "argument " + base::quote(manifest_.arguments[by].name) + ", which picks " + name +
                            " of [family], needs more than the inputs: " + base::quote(value.text()) +
                            "; write an expression over the inputs, or give " + name + " in param");
  }
  out_.parameters.insert(after, {parameter, value, -1, true});
}

bool ValueReader::takes_integer(std::size_t argument) const {
  return is_integer(manifest_.arguments[argument].type.kind);
}

template <class Fail>
void ValueReader::bind_operand(std::size_t argument, const std::string& text, const Fail& fail) {
  const ArgumentSpec& a = manifest_.arguments[argument];
  const std::size_t dot = text.find('.');
  const int operand = operand_index(out_, std::string_view(text).substr(0, dot));
  if (operand < 0) fail(base::quote(text) + " is no input or output");
  const BindOperand& o = operand_at(out_, operand);
  BindArgument& out = out_.arguments[argument];
  out.operand = operand;
  if (a.type.kind == ArgumentType::Kind::pointer && o.kind == OperandKind::tensor &&
      dot == std::string::npos) {
    out.kind = BindArgument::Kind::tensor;
    const bool same = !o.dtype.computed.empty() || (!a.type.dtype && a.type.dtype_parameter < 0) ||
                      (o.dtype.fixed == a.type.dtype && o.dtype.parameter == a.type.dtype_parameter);
    if (!same)
      fail(base::quote(o.name) + " has another element type than argument " + base::quote(a.name) +
           " of the kernel, which is " + a.type.to_string(manifest_.parameters));
    if (a.access != Access::read && !o.written)
      fail("the kernel writes to argument " + base::quote(a.name) + ": write " + o.name + ": ...[...]! ");
    return;
  }
  out.kind = BindArgument::Kind::number;
  if (a.type.is_float() && o.kind == OperandKind::number && dot == std::string::npos) return;
  if (a.type.is_float() && o.kind == OperandKind::numbers && dot != std::string::npos) {
    const auto index = number_from<std::size_t>(std::string_view(text).substr(dot + 1));
    if (index && *index < o.count) return void(out.index = *index);
  }
  fail(base::quote(text) + " does not suit argument " + base::quote(a.name) + ", which is " +
       a.type.to_string(manifest_.parameters));
}

void ValueReader::read_arguments() {
  out_.arguments.resize(manifest_.arguments.size());
  std::vector<bool> bound(manifest_.arguments.size(), false);
  if (const TomlValue* table = reader_.find("arg")) {
    const TableReader given(*table, reader_.title() + " arg", reader_.file());
    for (const auto& [name, value] : table->members) {
      const int a = argument_index(manifest_, name);
      if (a < 0) given.fail(name, base::quote(name) + " is no argument of the kernel");
      const auto i = static_cast<std::size_t>(a);
      bound[i] = true;
      if (!takes_integer(i) && value.kind != TomlValue::Kind::string)
        given.fail_wanted(name, value, "the name of an input or output");
      if (takes_integer(i))
        out_.arguments[i] = integer_argument(given.expression(name, launch_));
      else
        bind_operand(i, value.string, [&, &named = name](const std::string& why) { given.fail(named, why); });
    }
  }
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const std::string& name = manifest_.arguments[i].name;
    if (bound[i] || operand_index(out_, name) < 0) continue;
    bound[i] = true;
    if (takes_integer(i))
      out_.arguments[i] = integer_argument(compile("call", name, launch_));
    else
      bind_operand(i, name, [&](const std::string& why) { reader_.fail("call", why); });
  }
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const int* slot = takes_integer(i) && !bound[i] ? call_.slot(manifest_.arguments[i].name) : nullptr;
    if (!slot) continue;
    bound[i] = true;
    out_.arguments[i] = integer_argument(compile("call", manifest_.arguments[i].name, call_));
  }
  for (const bool inputs : {true, false})  // a number that an input has is known earlier
    for (std::size_t i = 0; i < bound.size(); ++i)
      if (out_.arguments[i].kind == BindArgument::Kind::tensor &&
          (out_.arguments[i].operand < static_cast<int>(out_.inputs)) == inputs)
        lay_out(i, bound);
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const ArgumentSpec& a = manifest_.arguments[i];
    if (bound[i] || a.optional) continue;
    reader_.fail("call", "argument " + base::quote(a.name) +
                             " of the kernel is not optional, and nothing gives it; write it in arg");
  }
}

/// Takes integer arguments from the extents and strides of a tensor, as the kernel's argument names them, and
/// notes the layout that the kernel expects.
void ValueReader::lay_out(std::size_t argument, std::vector<bool>& bound) {
  const ArgumentSpec& a = manifest_.arguments[argument];
  const int operand = out_.arguments[argument].operand;
  const BindOperand& o = operand_at(out_, operand);
  BindLayout layout{operand, a.stride.empty(), {}};
  const bool one_shape = o.shapes.size() == 1;
  const std::size_t rank = one_shape ? o.shapes[0].extents.size() : 0, dims = a.shape.size();
  // The first dimensions of the argument that the tensor has not, such as a batch; their sizes and strides keep the
  // manifest's values.
  const int absent = one_shape && !o.shapes[0].leading && dims > rank ? static_cast<int>(dims - rank) : 0;
  const bool maps = one_shape && dims > 0 && rank > 0 && (!o.shapes[0].leading || dims <= rank + 1);
  const auto take = [&](const Expression& entry, BindMeasure wanted) {
    const int of = base::is_identifier(entry.text()) ? argument_index(manifest_, entry.text()) : -1;
    if (of < 0 || bound[static_cast<std::size_t>(of)]) return false;
    bound[static_cast<std::size_t>(of)] = true;
    const int slot = measure(out_, wanted, entry.text());
    Symbols only;
    only.slots.emplace(entry.text(), slot);
    out_.arguments[static_cast<std::size_t>(of)] = integer_argument(compile("call", entry.text(), only));
    return true;
  };
  const auto last = static_cast<int>(dims) - 1;
  bool any_taken = false;
  for (int i = absent; maps && i <= last; ++i)
    take(a.shape[static_cast<std::size_t>(i)], i == 0
                                                   ? BindMeasure{MeasureKind::leading_extent, operand, last}
                                                   : BindMeasure{MeasureKind::extent, operand, i - last - 1});
  if (!maps && one_shape) layout.dense = o.strides.empty();
  for (int i = last; i >= absent && !layout.dense && !a.stride.empty() && (maps || !one_shape); --i) {
    const Expression& stride = a.stride[static_cast<std::size_t>(i)];
    const bool taken = maps && take(stride, i == 0 ? BindMeasure{MeasureKind::leading_stride, operand, last}
                                                   : BindMeasure{MeasureKind::stride, operand, i - last - 1});
    any_taken |= taken;
    layout.strides.push_back(taken ? Expression() : stride);
  }
  // The tensor has other dimensions than the kernel's argument, and `arg` gives all strides: it must be dense, or have
  // the strides that an output says.
  if (maps && !any_taken && !o.shapes[0].leading && dims != rank) {
    layout.dense = o.strides.empty();
    layout.strides.clear();
  }
  out_.layouts.push_back(std::move(layout));
}

}  // namespace kiln::source
