#include "manifest/read/tensor_maps.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {
namespace {

using ArgumentKind = ArgumentType::Kind;

class TensorMapReader {
 public:
  TensorMapReader(const Draft& draft, TensorMapSpec& out, const TableReader& reader)
      : draft_(draft), out_(out), reader_(reader) {}

  void read() {
    out_.doc = reader_.text_or("doc", "");
    out_.of = argument("of", ArgumentKind::pointer, "a pointer");
    read_element();
    read_shape();
    out_.swizzle = expression_or_none("swizzle");
    out_.l2 = expression_or_none("l2");
    out_.interleave = expression_or_none("interleave");
    read_fill();
    read_holder();
  }

 private:
  const ArgumentSpec& at(int argument) const {
    return draft_.out.arguments[static_cast<std::size_t>(argument)];
  }

  int argument(std::string_view key, ArgumentKind kind, const char* what) const {
    const std::string name = reader_.need_line(key);
    std::vector<std::string> known;
    for (const ArgumentSpec& a : draft_.out.arguments)
      if (a.type.kind == kind) known.push_back(a.name);
    if (std::find(known.begin(), known.end(), name) == known.end())
      reader_.fail(key, base::quote(name) + " is no argument that is " + what +
                            base::did_you_mean(name, known) +
                            "; known: " + (known.empty() ? "none" : base::join(known, " ")));
    return argument_index(draft_.out, name);
  }

  Expression expression_or_none(std::string_view key) const {
    return reader_.has(key) ? reader_.expression(key, draft_.launch) : Expression::constant(0);
  }

  void read_element() {
    const ArgumentType& type = at(out_.of).type;
    if (!reader_.has("dtype")) {
      if (type.dtype_parameter < 0 && !type.dtype)
        reader_.fail("dtype", "is missing, and " + base::quote(at(out_.of).name) + " is a ptr<void>");
      out_.element = type.dtype
                         ? Expression::constant(static_cast<std::int64_t>(*type.dtype))
                         : Expression::compile(
                               draft_.out.parameters[static_cast<std::size_t>(type.dtype_parameter)].name,
                               draft_.launch, reader_.where("dtype"));
      return;
    }
    constexpr std::pair<std::string_view, TensorMapSpec::Float32> changed[] = {
        {"f32_flushed", TensorMapSpec::Float32::flushed},
        {"tf32", TensorMapSpec::Float32::tf32},
        {"tf32_flushed", TensorMapSpec::Float32::tf32_flushed}};
    const std::string text = reader_.need_line("dtype");
    for (const auto& [name, float32] : changed) {
      if (text != name) continue;
      out_.float32 = float32;
      out_.element = Expression::constant(static_cast<std::int64_t>(Dtype::f32));
      return;
    }
    std::vector<std::string> known(std::begin(kDtypeNames), std::end(kDtypeNames));
    for (const ParameterSpec& p : draft_.out.parameters)
      if (p.kind == ParameterKind::dtype) known.push_back(p.name);
    for (const auto& [name, float32] : changed) known.emplace_back(name);
    if (std::find(known.begin(), known.end(), text) == known.end())
      reader_.fail("dtype", base::quote(text) + " is no dtype and no dtype parameter" +
                                base::did_you_mean(text, known) + "; known: " + base::join(known, " "));
    out_.element = reader_.expression("dtype", draft_.launch);
  }

  void read_shape() {
    reader_.need("dims");
    reader_.need("box");
    out_.dims = reader_.expressions("dims", draft_.launch, kMaxTensorMapRank);
    check_rank("box", out_.box = reader_.expressions("box", draft_.launch, kMaxTensorMapRank),
               out_.dims.size());
    if (reader_.has("element_strides"))
      check_rank(
          "element_strides",
          out_.element_strides = reader_.expressions("element_strides", draft_.launch, kMaxTensorMapRank),
          out_.dims.size());
    out_.strides_in_bytes = reader_.has("byte_strides");
    const std::string_view key = out_.strides_in_bytes ? "byte_strides" : "strides";
    if (out_.strides_in_bytes && reader_.has("strides"))
      reader_.fail("strides", "is in elements, and byte_strides says the same in bytes: write one of them");
    if (reader_.has(key)) out_.strides = reader_.expressions(key, draft_.launch, kMaxTensorMapRank);
    if (out_.strides.size() + 1 != out_.dims.size())
      reader_.fail(key, "has " + std::to_string(out_.strides.size()) +
                            " strides; expected one for each of dims but the first, whose elements are "
                            "neighbours, which makes " +
                            std::to_string(out_.dims.size() - 1));
  }

  void check_rank(std::string_view key, const std::vector<Expression>& given, std::size_t rank) const {
    if (given.size() != rank)
      reader_.fail(
          key, "has " + std::to_string(given.size()) + " dimensions, and dims has " + std::to_string(rank));
  }

  void read_fill() {
    const std::string fill = reader_.text_or("fill", "zero");
    if (fill != "zero" && fill != "nan")
      reader_.fail("fill", base::quote(fill) + " is unknown; allowed: zero nan");
    out_.fill_nan = fill == "nan";
  }

  void read_holder() {
    out_.offset = Expression::constant(0);
    if (reader_.has("offset") && !reader_.has("in"))
      reader_.fail("offset", "is the map's place in a struct, which `in` must name");
    if (!reader_.has("in")) return;
    out_.in = argument("in", ArgumentKind::structure, "a struct");
    if (!reader_.has("offset")) return;
    out_.offset = reader_.expression("offset", draft_.launch);
    const SlotLayout& slots = draft_.out.slots;
    for (const int slot : out_.offset.reads())
      if (slot >= slots.argument_slot(0) && slot < slots.export_slot(0))
        reader_.fail("offset", base::quote(out_.offset.text()) +
                                   " reads an argument or a run-time value, but a struct has one layout");
  }

  const Draft& draft_;
  TensorMapSpec& out_;
  const TableReader& reader_;
};

TableReader reader_of(const TomlValue& table, const TableReader& root) {
  const TomlValue* name = table.find("name");
  return {table,
          "[[tensormap]]" +
              (name && name->kind == TomlValue::Kind::string ? ' ' + base::quote(name->string) : ""),
          root.file(),
          {"name", "doc", "of", "dtype", "dims", "strides", "byte_strides", "box", "element_strides",
           "swizzle", "l2", "interleave", "fill", "in", "offset"}};
}

using From = PassedArgument::From;

/// The kernel's arguments when the manifest does not list them: all arguments of the call, and then the tensor maps.
std::vector<PassedArgument> all_of(const Manifest& m) {
  std::vector<PassedArgument> out;
  for (std::size_t i = 0; i < m.arguments.size(); ++i) out.push_back({From::call, i});
  for (std::size_t i = 0; i < m.tensor_maps.size(); ++i)
    if (m.tensor_maps[i].in < 0) out.push_back({From::tensor_map, i});
  return out;
}

std::optional<PassedArgument> passed_named(const Manifest& m, const std::string& name) {
  if (const int i = argument_index(m, name); i >= 0)
    return PassedArgument{From::call, static_cast<std::size_t>(i)};
  for (std::size_t i = 0; i < m.tensor_maps.size(); ++i)
    if (m.tensor_maps[i].name == name && m.tensor_maps[i].in < 0) return PassedArgument{From::tensor_map, i};
  return std::nullopt;
}

bool is_passed(const Manifest& m, From from, std::size_t index) {
  return std::any_of(m.passed.begin(), m.passed.end(),
                     [&](const PassedArgument& p) { return p.from == from && p.index == index; });
}

/// Reads { null = true } or a number such as { u32 = "N" }.
PassedConstant constant_of(const Draft& draft, const TomlValue& item, const TableReader& reader) {
  using Type = ArgumentType::Kind;
  constexpr std::pair<std::string_view, Type> kinds[] = {
      {"null", Type::pointer}, {"i32", Type::i32}, {"u32", Type::u32}, {"i64", Type::i64},
      {"u64", Type::u64},      {"f32", Type::f32}, {"f64", Type::f64}};
  const TableReader table(item, reader.title() + " arguments", reader.file(),
                          {"null", "i32", "u32", "i64", "u64", "f32", "f64"});
  if (item.members.size() != 1)
    reader.fail("arguments",
                "a constant has one type, such as { null = true }, { u32 = \"N\" } or { f32 = 0.5 }");
  const auto& [type, value] = item.members.front();
  PassedConstant out;
  out.text = type;
  for (const auto& [name, kind] : kinds)
    if (name == type) out.kind = kind;
  if (out.kind == Type::pointer) {
    if (!table.boolean_or("null", false)) table.fail("null", "must be true");
    return out;
  }
  if (value.kind == TomlValue::Kind::real && !is_integer(out.kind)) {
    out.number = value.real;
    char digits[32];
    std::snprintf(digits, sizeof digits, " %g", value.real);
    out.text += digits;
    return out;
  }
  out.value = table.expression(type, draft.launch);
  out.text += ' ' + out.value.text();
  return out;
}

void check_passed(const Manifest& m, const TableReader& reader) {
  for (std::size_t i = 0; i < m.arguments.size(); ++i) {
    const ArgumentSpec& a = m.arguments[i];
    if (a.type.size() == 0 && !is_passed(m, From::call, i))
      reader.fail("arguments", "leaves out " + base::quote(a.name) +
                                   ", whose size only the kernel says: write its type as struct<BYTES>");
  }
}

}  // namespace

void declare_tensor_maps(Draft& draft, const TableReader& root) {
  const auto tables = root.tables("tensormap");
  if (tables.size() > static_cast<std::size_t>(kMaxTensorMaps))
    root.fail("tensormap",
              std::to_string(tables.size()) + " entries; at most " + std::to_string(kMaxTensorMaps));
  for (const TomlValue* table : tables) {
    const TableReader reader = reader_of(*table, root);
    TensorMapSpec map;
    map.name = reader.need_line("name");
    take_name(draft, reader, "name", map.name, "a tensor map");
    draft.out.tensor_maps.push_back(std::move(map));
  }
}

void read_tensor_maps(Draft& draft, const TableReader& root) {
  const auto tables = root.tables("tensormap");
  for (std::size_t i = 0; i < tables.size(); ++i)
    TensorMapReader(draft, draft.out.tensor_maps[i], reader_of(*tables[i], root)).read();
}

void read_passed(Draft& draft, const TableReader& root) {
  Manifest& m = draft.out;
  m.passed = all_of(m);
  const TableReader reader(root.need("template"), "[template]", root.file());
  if (!reader.has("arguments")) return;
  const std::vector<PassedArgument> known = std::move(m.passed);
  m.passed.clear();
  const TomlValue& list = reader.need("arguments");
  if (list.kind != TomlValue::Kind::array)
    reader.fail_wanted("arguments", list, "an array of names and constants");
  for (const TomlValue& item : list.items) {
    if (item.kind == TomlValue::Kind::table) {
      m.passed.push_back({From::constant, m.constants.size()});
      m.constants.push_back(constant_of(draft, item, reader));
      if (m.constants.size() > kMaxConstants)
        reader.fail("arguments", "more than " + std::to_string(kMaxConstants) + " constants");
      continue;
    }
    if (item.kind != TomlValue::Kind::string)
      reader.fail_wanted("arguments", item, "names of arguments and tensor maps, and constants");
    const std::string& name = item.string;
    const auto named = passed_named(m, name);
    if (!named) {
      std::vector<std::string> names;
      for (const PassedArgument& p : known) names.push_back(passed_name(m, p));
      reader.fail("arguments", base::quote(name) + " is no argument and no tensor map" +
                                   base::did_you_mean(name, names) + "; known: " + base::join(names, " "));
    }
    if (is_passed(m, named->from, named->index))
      reader.fail("arguments", base::quote(name) + " stands there twice");
    m.passed.push_back(*named);
  }
  check_passed(m, reader);
}

}  // namespace kiln::source
