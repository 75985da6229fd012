#include "manifest/bind/reader.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <stdexcept>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/bind/signature.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {
namespace {
using OperandKind = BindOperand::Kind;
using MeasureKind = BindMeasure::Kind;

/// The whole text as a number, or nothing.
template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

/// Reads one operator. It is the source of the measures that its expressions name.
class BindReader : TensorMeasures {
 public:
  BindReader(const Draft& draft, const TableReader& reader, BindSpec& out)
      : manifest_(draft.out), reader_(reader), out_(out) {
    out_.first_slot = manifest_.slots.total();
    call_.constants = draft.resolve.constants;
    call_.dtypes = draft.resolve.dtypes;
    call_.tensors = launch_.tensors = this;
    launch_.below = &draft.launch;
  }

  void read() {
    out_.name = reader_.text_or("name", manifest_.name);
    if (!base::is_identifier(out_.name))
      reader_.fail("name", base::quote(out_.name) + " must be named [A-Za-z_][A-Za-z0-9_]*");
    out_.doc = reader_.text_or("doc", manifest_.summary);
    out_.call = reader_.need_line("call"), out_.out = reader_.text_or("out", "");
    if (!manifest_.runtime.empty())
      reader_.fail("call", "the manifest has [runtime] values, which a call with tensors does not give");
    const auto inputs = parts("call"), results = parts("out"), scratch = parts("scratch");
    for (const auto& part : inputs) declare_input(part);
    out_.inputs = out_.operands.size();
    for (const auto& part : results) declare_output("out", part);
    out_.results = results.size();
    for (const auto& part : scratch) declare_output("scratch", part);
    if (out_.operands.size() > kMaxOperands)
      reader_.fail("call", std::to_string(out_.operands.size()) + " inputs and outputs; at most " +
                               std::to_string(kMaxOperands));
    for (const ParameterSpec& p : manifest_.parameters)
      call_.unavailable.emplace(p.name, "it is a parameter that no input gives");
    read_named();
    compile_operands(inputs, "call", 0);
    compile_operands(results, "out", out_.inputs);
    compile_operands(scratch, "scratch", out_.inputs + out_.results);
    read_parameters();
    read_arguments();
    read_requirements();
  }

 private:
  // ---- measures

  int measure(BindMeasure wanted, const std::string& name) {
    const auto found = std::find(out_.measures.begin(), out_.measures.end(), wanted);
    const auto index = static_cast<int>(found - out_.measures.begin());
    if (found == out_.measures.end()) out_.measures.push_back(wanted), out_.measure_names.push_back(name);
    return out_.first_slot + index;
  }
  void name_measure(const std::string& name, BindMeasure wanted) {
    const int slot = measure(wanted, name);
    call_.slots.emplace(name, slot);
    launch_.slots.emplace(name, slot);
  }

  int slot(std::string_view function, std::string_view tensor, std::optional<std::int64_t> index,
           std::string& problem) override {
    constexpr std::pair<std::string_view, MeasureKind> plain[] = {
        {"present", MeasureKind::present}, {"dtype", MeasureKind::dtype}, {"rank", MeasureKind::rank},
        {"numel", MeasureKind::elements},  {"dim", MeasureKind::extent},  {"stride", MeasureKind::stride}};
    const int operand = operand_index(tensor);
    const bool is_tensor = operand >= 0 && operand_at(operand).kind == OperandKind::tensor;
    const auto kind = std::find_if(std::begin(plain), std::end(plain), [&](auto& p) {
                        return p.first == function;
                      })->second;
    if (operand < 0 || (kind != MeasureKind::present && !is_tensor)) {
      problem = std::string(function) + " takes " + (kind == MeasureKind::present ? "an input" : "a tensor") +
                " of the signature, not " + base::quote(tensor);
      return -1;
    }
    const bool takes_index = kind == MeasureKind::extent || kind == MeasureKind::stride;
    if (takes_index != index.has_value()) {
      problem =
          std::string(function) + (takes_index ? " takes a tensor and a dimension" : " takes a tensor alone");
      return -1;
    }
    if (index && (*index < -kMaxRank || *index >= kMaxRank)) {
      problem = "dimensions are " + std::to_string(-kMaxRank) + " to " + std::to_string(kMaxRank - 1);
      return -1;
    }
    std::string name = std::string(function) + '(' + std::string(tensor);
    if (index) name += ", " + std::to_string(*index);
    return measure({kind, operand, static_cast<int>(index.value_or(0))}, name + ')');
  }

  // ---- operands

  std::vector<SignaturePart> parts(std::string_view key) const {
    const std::string text = reader_.text_or(key, "");
    try {
      return parse_signature(text);
    } catch (const std::invalid_argument& error) {
      reader_.fail(key, base::quote(text) + ", " + error.what());
    }
  }

  const BindOperand& operand_at(int index) const { return out_.operands[static_cast<std::size_t>(index)]; }
  int operand_index(std::string_view name) const {
    const auto found = std::find_if(out_.operands.begin(), out_.operands.end(),
                                    [&](const BindOperand& o) { return o.name == name; });
    return found == out_.operands.end() ? -1 : static_cast<int>(found - out_.operands.begin());
  }

  BindOperand& declare(std::string_view key, const SignaturePart& part) {
    if (operand_index(part.name) >= 0) reader_.fail(key, "two operands are called " + base::quote(part.name));
    if (is_reserved_name(part.name))
      reader_.fail(key, base::quote(part.name) + " is a word of expressions, and cannot name an operand");
    BindOperand& out = out_.operands.emplace_back();
    out.name = part.name, out.optional = part.optional, out.written = part.written;
    return out;
  }

  void declare_input(const SignaturePart& part) {
    BindOperand& out = declare("call", part);
    const int index = static_cast<int>(out_.operands.size()) - 1;
    out.parameter = parameter_index(manifest_, part.type);
    if (part.shapes.empty()) {
      declare_scalar(part, out);
      if (out.kind != OperandKind::numbers) name_measure(part.name, {MeasureKind::scalar, index, 0});
      return;
    }
    if (part.type == "float") return declare_numbers(part, out);
    declare_tensor("call", part, out, index);
    if (part.shapes.size() > 1) return;
    const auto extents = split_list(part.shapes[0]);
    const bool leading = !extents.empty() && extents[0] == "...";
    for (std::size_t i = leading ? 1 : 0; i < extents.size(); ++i) {
      if (!base::is_identifier(extents[i]) || call_.slot(extents[i]) || is_named(extents[i])) continue;
      const int p = parameter_index(manifest_, extents[i]);
      if (p >= 0 && manifest_.parameters[static_cast<std::size_t>(p)].kind != ParameterKind::integer)
        reader_.fail("call",
                     base::quote(extents[i]) + " is a parameter, and no integer: it cannot name a dimension");
      const int at = leading ? static_cast<int>(i) - static_cast<int>(extents.size()) : static_cast<int>(i);
      name_measure(extents[i], {MeasureKind::extent, index, at});
    }
  }

  void declare_scalar(const SignaturePart& part, BindOperand& out) {
    if (part.written) reader_.fail("call", base::quote(part.name) + " is a number, and cannot be written to");
    constexpr std::pair<std::string_view, OperandKind> plain[] = {
        {"int", OperandKind::integer}, {"bool", OperandKind::boolean}, {"float", OperandKind::number}};
    for (const auto& [word, kind] : plain)
      if (part.type == word) return void(out.kind = kind);
    if (out.parameter < 0)
      reader_.fail("call",
                   base::quote(part.type) +
                       " is unknown; allowed: int bool float, a parameter of the template, or a dtype "
                       "and a shape such as f32[..., H]");
    const ParameterSpec& p = manifest_.parameters[static_cast<std::size_t>(out.parameter)];
    constexpr OperandKind kinds[] = {OperandKind::dtype, OperandKind::integer, OperandKind::boolean,
                                     OperandKind::choice, OperandKind::choice};
    out.kind = kinds[static_cast<std::size_t>(p.kind)];
    if (part.fallback.empty() && !p.default_value.empty()) out.optional = true;
  }

  void declare_numbers(const SignaturePart& part, BindOperand& out) {
    const auto count = number_from<std::size_t>(part.shapes[0]);
    if (part.shapes.size() > 1 || !count || *count < 1 || *count > 16)
      reader_.fail("call", base::quote(part.name) + " must be float[N] with 1 to 16 numbers");
    out.kind = OperandKind::numbers, out.count = *count, out.parameter = -1;
  }

  void declare_tensor(std::string_view key, const SignaturePart& part, BindOperand& out, int index) {
    out.kind = OperandKind::tensor;
    if (part.type.starts_with('(')) {
      if (key == "call")
        reader_.fail(key, base::quote(part.name) + ": only the dtype of an output is computed");
      return;
    }
    out.dtype.fixed = dtype_from(part.type);
    if (out.dtype.fixed || part.type == "any") return void(out.parameter = -1);
    const int p = parameter_index(manifest_, part.type);
    if (p < 0 || manifest_.parameters[static_cast<std::size_t>(p)].kind != ParameterKind::dtype)
      reader_.fail(key, base::quote(part.type) + " of " + base::quote(part.name) +
                            " is no dtype and no dtype parameter; any stands for every dtype");
    out.dtype.parameter = p, out.parameter = -1;
    if (index < static_cast<int>(inputs_so_far()) && !call_.slot(part.type)) {
      name_measure(part.type, {MeasureKind::dtype, index, 0});
      call_.dtypes.insert(part.type);
    }
  }
  /// All operands are inputs until the outputs are declared.
  std::size_t inputs_so_far() const { return out_.inputs ? out_.inputs : out_.operands.size(); }

  void declare_output(std::string_view key, const SignaturePart& part) {
    BindOperand& out = declare(key, part);
    if (part.shapes.size() != 1 || !part.fallback.empty() || part.written || part.optional)
      reader_.fail(key, base::quote(part.name) + " must be a tensor with one shape, such as T[..., H]");
    out.written = true;
    declare_tensor(key, part, out, static_cast<int>(out_.operands.size()) - 1);
    if (part.type == "any")
      reader_.fail(key, base::quote(part.name) + " needs a dtype, because kiln allocates it");
  }

  void compile_operands(const std::vector<SignaturePart>& from, std::string_view key, std::size_t first) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      BindOperand& out = out_.operands[first + i];
      if (out.kind == OperandKind::tensor)
        compile_tensor(from[i], key, out, static_cast<int>(first + i));
      else if (!from[i].fallback.empty())
        compile_fallback(from[i], out);
    }
  }

  Expression compile(std::string_view key, const std::string& text, const Symbols& symbols) const {
    return Expression::compile(text, symbols, reader_.where(key));
  }

  void compile_tensor(const SignaturePart& part, std::string_view key, BindOperand& out, int index) {
    const bool is_output = key != "call";
    if (part.type.starts_with('(')) out.dtype.computed = compile(key, part.type, launch_);
    for (const std::string& text : part.shapes) {
      BindShape& shape = out.shapes.emplace_back();
      auto extents = split_list(text);
      if (extents.size() > kMaxRank)
        reader_.fail(key, base::quote(text) + " has more than " + std::to_string(kMaxRank) + " dimensions");
      if (!extents.empty() && extents[0] == "...") {
        shape.leading = true;
        extents.erase(extents.begin());
        if (out_.leading < 0 && !is_output) out_.leading = index;
        if (out_.leading < 0)
          reader_.fail(key,
                       "no input has the dimensions that ... of " + base::quote(part.name) + " stands for");
      }
      for (const std::string& extent : extents)
        shape.extents.push_back(compile(key, extent, is_output ? launch_ : call_));
    }
    if (!part.strides.empty()) {
      if (!is_output) reader_.fail(key, "only an output says its strides");
      for (const std::string& stride : split_list(part.strides))
        out.strides.push_back(compile(key, stride, launch_));
      if (out.shapes[0].leading || out.strides.size() != out.shapes[0].extents.size())
        reader_.fail(key, base::quote(part.name) + " needs one stride for each dimension, and no ...");
    }
    if (!part.fallback.empty())
      reader_.fail(key, base::quote(part.name) + " is a tensor, and has no default");
  }

  void compile_fallback(const SignaturePart& part, BindOperand& out) {
    if (out.kind == OperandKind::number) {
      out.number_fallback = number_from<double>(part.fallback);
      if (!out.number_fallback)
        reader_.fail("call", base::quote(part.fallback) + ", the default of " + base::quote(part.name) +
                                 ", is no number");
      return;
    }
    if (out.kind == OperandKind::numbers)
      reader_.fail("call",
                   base::quote(part.name) + " has several numbers, and no default; ? makes it optional");
    std::string text = part.fallback;
    if (out.kind == OperandKind::choice)
      text = manifest_.parameters[static_cast<std::size_t>(out.parameter)].name + '.' + text;
    out.fallback = compile("call", text, call_);
  }

  /// True for the names of `let`, which no dimension takes.
  bool is_named(const std::string& name) const {
    const TomlValue* const table = reader_.find("let");
    return table && table->find(name);
  }
  void read_named() {
    const TomlValue* table = reader_.find("let");
    if (!table) return;
    const TableReader given(*table, reader_.title() + " let", reader_.file());
    for (const auto& [name, value] : table->members) {
      if (!base::is_identifier(name) || is_reserved_name(name) || call_.slot(name) ||
          operand_index(name) >= 0)
        given.fail(name, base::quote(name) + " cannot name a number: it is no name, or names something else");
      Expression number = given.expression(name, call_);
      name_measure(name, {MeasureKind::named, -1, static_cast<int>(out_.named.size())});
      out_.named.push_back({*call_.slot(name), std::move(number)});
    }
  }

  // ---- parameters

  void read_parameters() {
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
                    operand >= 0 && operand_at(operand).optional ? operand : -1};
      }
      if (!found.contains(p) && manifest_.parameters[i].default_value.empty())
        reader_.fail("call",
                     "parameter " + name + " has no default, and no input gives it; write it in param");
    }
    for (auto& [p, value] : found) out_.parameters.push_back(std::move(value));
  }

  // ---- arguments

  void read_arguments() {
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
          bind_operand(i, value.string, [&](const std::string& why) { given.fail(name, why); });
      }
    }
    for (std::size_t i = 0; i < bound.size(); ++i) {
      const std::string& name = manifest_.arguments[i].name;
      if (bound[i] || operand_index(name) < 0) continue;
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

  bool takes_integer(std::size_t argument) const {
    return is_integer(manifest_.arguments[argument].type.kind);
  }

  static BindArgument integer_argument(Expression value) {
    return {BindArgument::Kind::integer, -1, 0, std::move(value)};
  }

  template <class Fail>
  void bind_operand(std::size_t argument, const std::string& text, const Fail& fail) {
    const ArgumentSpec& a = manifest_.arguments[argument];
    const std::size_t dot = text.find('.');
    const int operand = operand_index(std::string_view(text).substr(0, dot));
    if (operand < 0) fail(base::quote(text) + " is no input or output");
    const BindOperand& o = operand_at(operand);
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

  /// Takes integer arguments from the extents and strides of a tensor, as the kernel's argument names them, and
  /// notes the layout that the kernel expects.
  void lay_out(std::size_t argument, std::vector<bool>& bound) {
    const ArgumentSpec& a = manifest_.arguments[argument];
    const int operand = out_.arguments[argument].operand;
    const BindOperand& o = operand_at(operand);
    BindLayout layout{operand, a.stride.empty(), {}};
    const bool one_shape = o.shapes.size() == 1;
    const std::size_t rank = one_shape ? o.shapes[0].extents.size() : 0, dims = a.shape.size();
    const bool maps = one_shape && dims > 0 && (o.shapes[0].leading ? dims <= rank + 1 : dims <= rank);
    const auto take = [&](const Expression& entry, BindMeasure wanted) {
      const int of = base::is_identifier(entry.text()) ? argument_index(manifest_, entry.text()) : -1;
      if (of < 0 || bound[static_cast<std::size_t>(of)]) return false;
      bound[static_cast<std::size_t>(of)] = true;
      const int slot = measure(wanted, entry.text());
      Symbols only;
      only.slots.emplace(entry.text(), slot);
      out_.arguments[static_cast<std::size_t>(of)] = integer_argument(compile("call", entry.text(), only));
      return true;
    };
    const auto last = static_cast<int>(dims) - 1;
    bool any_taken = false;
    for (int i = 0; maps && i <= last; ++i)
      take(a.shape[static_cast<std::size_t>(i)],
           i == 0 ? BindMeasure{MeasureKind::leading_extent, operand, last}
                  : BindMeasure{MeasureKind::extent, operand, i - last - 1});
    if (!maps && one_shape) layout.dense = o.strides.empty();
    for (int i = last; i >= 0 && !layout.dense && !a.stride.empty() && (maps || !one_shape); --i) {
      const Expression& stride = a.stride[static_cast<std::size_t>(i)];
      const bool taken =
          maps && take(stride, i == 0 ? BindMeasure{MeasureKind::leading_stride, operand, last}
                                      : BindMeasure{MeasureKind::stride, operand, i - last - 1});
      any_taken |= taken;
      layout.strides.push_back(taken ? Expression() : stride);
    }
    // The tensor has other dimensions than the kernel's argument, and `arg` gives all strides: it must be dense.
    if (maps && !any_taken && !o.shapes[0].leading && dims != rank) layout.dense = true;
    out_.layouts.push_back(std::move(layout));
  }

  void read_requirements() {
    for (const TomlValue* table : reader_.tables("require")) {
      const TableReader one(*table, reader_.title() + " require", reader_.file(), {"expr", "message"});
      out_.requirements.push_back({one.expression("expr", call_), one.need_line("message")});
      if (out_.requirements.back().expression.empty()) one.need("expr");
    }
  }

  const Manifest& manifest_;
  const TableReader& reader_;
  BindSpec& out_;
  Symbols call_;    ///< measures alone: parameters, defaults, requirements, shapes of inputs
  Symbols launch_;  ///< measures, and what a launch knows: arguments, shapes of outputs
};

}  // namespace

void read_binds(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("bind");
  if (!found) return;
  std::vector<const TomlValue*> tables{found};
  if (found->kind == TomlValue::Kind::array) tables = root.tables("bind");
  for (const TomlValue* table : tables) {
    const TableReader reader(*table, "[bind]", root.file(),
                             {"name", "doc", "call", "out", "scratch", "let", "param", "arg", "require"});
    BindSpec& out = draft.out.binds.emplace_back();
    BindReader(draft, reader, out).read();
    for (std::size_t i = 0; i + 1 < draft.out.binds.size(); ++i)
      if (draft.out.binds[i].name == out.name)
        reader.fail("name", "two operators are called " + base::quote(out.name));
  }
}

}  // namespace kiln::source
