#include "manifest/bind/reader.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/bind/operands.hpp"
#include "manifest/bind/signature.hpp"
#include "manifest/bind/values.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {
namespace {
using OperandKind = BindOperand::Kind;
using MeasureKind = BindMeasure::Kind;

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
    for (const auto& part : inputs)
      if (part.shapes.empty()) given_.insert(part.type);
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
    ValueReader values(manifest_, reader_, call_, launch_, out_);
    values.read_parameters();
    values.read_arguments();
    values.read_family();
    read_requirements();
  }

 private:
  // ---- measures

  void name_measure(const std::string& name, BindMeasure wanted) {
    const int slot = measure(out_, wanted, name);
    call_.slots.emplace(name, slot);
    launch_.slots.emplace(name, slot);
  }

  int slot(std::string_view function, std::string_view tensor, std::optional<std::int64_t> index,
           std::string& problem) override {
    constexpr std::pair<std::string_view, MeasureKind> plain[] = {
        {"present", MeasureKind::present}, {"dtype", MeasureKind::dtype}, {"rank", MeasureKind::rank},
        {"numel", MeasureKind::elements},  {"dim", MeasureKind::extent},  {"stride", MeasureKind::stride}};
    const int operand = operand_index(out_, tensor);
    const bool is_tensor = operand >= 0 && operand_at(out_, operand).kind == OperandKind::tensor;
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
    return measure(out_, {kind, operand, static_cast<int>(index.value_or(0))}, name + ')');
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

  BindOperand& declare(std::string_view key, const SignaturePart& part) {
    if (operand_index(out_, part.name) >= 0)
      reader_.fail(key, "two operands are called " + base::quote(part.name));
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
    if (index < static_cast<int>(inputs_so_far()) && !call_.slot(part.type) && !given_.contains(part.type)) {
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
          operand_index(out_, name) >= 0)
        given.fail(name, base::quote(name) + " cannot name a number: it is no name, or names something else");
      Expression number = given.expression(name, call_);
      name_measure(name, {MeasureKind::named, -1, static_cast<int>(out_.named.size())});
      out_.named.push_back({*call_.slot(name), std::move(number)});
    }
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
  std::set<std::string> given_;  ///< types of inputs without a shape, such as OUT of "out_dtype: OUT"
  Symbols call_;                 ///< measures alone: parameters, defaults, requirements, shapes of inputs
  Symbols launch_;               ///< measures, and what a launch knows: arguments, shapes of outputs
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
