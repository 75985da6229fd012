#include "manifest/read/parameters.hpp"

#include <algorithm>
#include <cstdint>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "manifest/parameter_value.hpp"
#include "manifest/read/compile_options.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {
namespace {
using Kind = TomlValue::Kind;
using Choice = ParameterSpec::Choice;

constexpr std::string_view kCudaSpelling[kDtypeCount] = {
    "float",        "__half",        "__nv_bfloat16", "__nv_fp8_e4m3", "__nv_fp8_e5m2", "double",
    "signed char",  "unsigned char", "int",           "unsigned int",  "long long",     "unsigned long long",
    "__nv_fp8_e8m0"};

void add_choice(ParameterSpec& spec, const TableReader& reader, Choice choice) {
  const auto same = [&](const Choice& other) { return other.name == choice.name; };
  if (std::any_of(spec.choices.begin(), spec.choices.end(), same))
    reader.fail("values", base::quote(choice.name) + " is there twice");
  spec.choices.push_back(std::move(choice));
}

void read_dtype_values(ParameterSpec& spec, const TableReader& reader) {
  reader.need("values");
  const TomlValue* table = reader.find("spelling");
  if (table && table->kind != Kind::table) table = nullptr;
  const std::string spelling = table ? "" : reader.text_or("spelling", "kiln");
  if (!table && spelling != "kiln" && spelling != "cuda")
    reader.fail("spelling",
                base::quote(spelling) + " is unknown; allowed: kiln cuda, or a table dtype -> C++ text");
  for (const std::string& name : reader.lines("values")) {
    const auto dtype = dtype_from(name);
    if (!dtype) {
      const std::vector<std::string> known(std::begin(kDtypeNames), std::end(kDtypeNames));
      reader.fail("values", base::quote(name) + " is no dtype" + base::did_you_mean(name, known) +
                                "; known: " + base::join(known, " "));
    }
    const auto ordinal = static_cast<std::int64_t>(*dtype);
    std::string cpp = spelling == "cuda" ? std::string(kCudaSpelling[ordinal]) : "kiln::" + name;
    if (table) cpp = TableReader(*table, reader.title() + " spelling", reader.file()).need_line(name);
    add_choice(spec, reader, {name, ordinal, std::move(cpp), ""});
  }
  if (!table) return;
  for (const auto& [name, cpp] : table->members) {
    const auto same = [&, &named = name](const Choice& choice) { return choice.name == named; };
    if (std::none_of(spec.choices.begin(), spec.choices.end(), same))
      reader.fail("spelling", base::quote(name) + " is not one of the values: " + allowed_values(spec));
  }
}

std::int64_t integer_in(const TableReader& reader, std::string_view key, const TomlValue& value) {
  if (value.kind != Kind::integer) reader.fail_wanted(key, value, "integers");
  return value.integer;
}

void read_integer_values(ParameterSpec& spec, const TableReader& reader) {
  if (reader.has("values") == reader.has("range")) {
    reader.fail("kind", "an int needs either values = [...] or range = [least, most]");
  }
  if (const TomlValue* range = reader.find("range")) {
    if (range->kind != Kind::array || range->items.size() != 2)
      reader.fail("range", "expected [least, most]");
    spec.range = {integer_in(reader, "range", range->items[0]), integer_in(reader, "range", range->items[1])};
    if (spec.range->first > spec.range->second) reader.fail("range", "the least value must come first");
    return;
  }
  const TomlValue& values = reader.need("values");
  if (values.kind != Kind::array) reader.fail_wanted("values", values, "an array of integers");
  for (const TomlValue& item : values.items) {
    const std::int64_t value = integer_in(reader, "values", item);
    add_choice(spec, reader, {std::to_string(value), value, integer_cpp(value), ""});
  }
}

/// Reads C++ text, or { cpp = "...", include = "x.h" }.
Choice spelled(const TableReader& reader, const std::string& name, const TomlValue& value) {
  Choice out{name, 0, "", ""};
  if (value.kind == Kind::table) {
    const TableReader table(value, reader.title() + " values." + name, reader.file(), {"cpp", "include"});
    out.cpp = table.need_line("cpp");
    out.include = table.text_or("include", "");
    if (!out.include.empty()) check_header(table, "include", out.include);
    return out;
  }
  if (value.kind != Kind::string) reader.fail_wanted("values", value, "C++ text for each name");
  if (value.string.empty() || !is_one_line(value.string))
    reader.fail("values", base::quote(value.string) + " must be one line of C++");
  out.cpp = value.string;
  return out;
}

/// Reads the values of an enum or a type.
void read_named_values(ParameterSpec& spec, const TableReader& reader) {
  const TomlValue& values = reader.need("values");
  const auto add = [&](Choice choice) {
    if (!base::is_identifier(choice.name))
      reader.fail("values", base::quote(choice.name) + " must be named [A-Za-z_][A-Za-z0-9_]*");
    choice.value = static_cast<std::int64_t>(spec.choices.size());
    add_choice(spec, reader, std::move(choice));
  };
  if (values.kind == Kind::array && spec.kind == ParameterKind::enumeration) {
    for (const std::string& name : reader.lines("values"))
      add({name, 0, std::to_string(spec.choices.size()), ""});
  } else if (values.kind == Kind::table) {
    for (const auto& [name, value] : values.members) add(spelled(reader, name, value));
  } else {
    reader.fail_wanted("values", values,
                       spec.kind == ParameterKind::type ? "a table name -> C++ text"
                                                        : "an array of names or a table name -> C++ text");
  }
}

/// A literal of the parameter's kind; nothing for any other value, and for a value that is not allowed.
std::optional<std::int64_t> literal(const ParameterSpec& spec, const TomlValue& value) {
  switch (value.kind) {
    case Kind::integer:
      if (spec.kind != ParameterKind::integer || !parameter_allows(spec, value.integer)) return std::nullopt;
      return value.integer;
    case Kind::boolean:
      if (spec.kind != ParameterKind::boolean) return std::nullopt;
      return value.boolean;
    case Kind::string:
      return parameter_value(spec, value.string);
    default:
      return std::nullopt;
  }
}

void read_tune(ParameterSpec& spec, const TableReader& reader) {
  const TomlValue* tune = reader.find("tune");
  if (!tune) return;
  if (tune->kind != Kind::array) reader.fail_wanted("tune", *tune, "an array of values");
  for (const TomlValue& item : tune->items) {
    const auto value = literal(spec, item);
    if (!value)
      reader.fail("tune", "every candidate must be one of the parameter's values: " + allowed_values(spec));
    spec.tune.push_back(*value);
  }
}

ParameterSpec read_parameter(const std::string& name, const TomlValue& table, const std::string& file) {
  const TableReader reader(table, "[param." + name + ']', file,
                           {"kind", "values", "range", "doc", "spelling", "default", "tune", "include"});
  ParameterSpec spec;
  spec.name = name;
  spec.doc = reader.text_or("doc", "");
  const std::string kind = reader.need_line("kind");
  if (kind == "dtype") {
    spec.kind = ParameterKind::dtype;
    read_dtype_values(spec, reader);
  } else if (kind == "int") {
    spec.kind = ParameterKind::integer;
    read_integer_values(spec, reader);
  } else if (kind == "bool") {
    spec.kind = ParameterKind::boolean;
    if (reader.has("values")) reader.fail("values", "a bool is true or false and takes no values");
  } else if (kind == "enum") {
    spec.kind = ParameterKind::enumeration;
    read_named_values(spec, reader);
  } else if (kind == "type") {
    spec.kind = ParameterKind::type;
    read_named_values(spec, reader);
  } else {
    reader.fail("kind", base::quote(kind) + " is unknown" +
                            base::did_you_mean(kind, {"dtype", "int", "bool", "enum", "type"}) +
                            "; allowed: dtype int bool enum type");
  }
  if (const TomlValue* include = reader.find("include")) {
    if (spec.kind == ParameterKind::integer || spec.kind == ParameterKind::boolean)
      reader.fail("include", "only dtypes, enums and types have spellings that need a header");
    spec.includes =
        include->kind == Kind::string ? std::vector{reader.need_line("include")} : reader.lines("include");
    for (const std::string& header : spec.includes) check_header(reader, "include", header);
  }
  if (spec.kind != ParameterKind::integer && reader.has("range"))
    reader.fail("range", "only an int has a range");
  if (spec.kind != ParameterKind::dtype && reader.has("spelling"))
    reader.fail("spelling", "only a dtype has a spelling");
  if (spec.kind != ParameterKind::boolean && !spec.range && spec.choices.empty())
    reader.fail("values", "must not be empty");
  read_tune(spec, reader);
  return spec;
}

Expression compile_default(const ParameterSpec& spec, const TableReader& reader, const Symbols& symbols) {
  const TomlValue* value = reader.find("default");
  if (!value) return {};
  const auto fail_value = [&](const std::string& shown) {
    reader.fail("default", shown + " is not a value of " + spec.name + "; allowed: " + allowed_values(spec));
  };
  if (const auto known = literal(spec, *value)) return Expression::constant(*known);
  if (value->kind == Kind::integer && spec.kind == ParameterKind::integer)
    fail_value(std::to_string(value->integer));
  if (value->kind != Kind::string)
    reader.fail_wanted("default", *value, "a value of the parameter, or an expression in a string");
  Expression out = reader.expression("default", symbols);
  if (!out.reads().empty()) return out;
  try {
    const std::int64_t constant = out.evaluate({});
    if (!parameter_allows(spec, constant))
      fail_value(base::quote(value->string) + " = " + std::to_string(constant));
  } catch (const Error& error) {
    if (error.code() == Errc::requirement) reader.fail("default", error.what());
    throw;
  }
  return out;
}

}  // namespace

void read_parameters(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("param");
  if (!found) return;
  const TableReader reader(*found, "[param]", root.file());
  for (const auto& [name, table] : found->members) {
    take_name(draft, reader, name, name, "a parameter");
    draft.out.parameters.push_back(read_parameter(name, table, root.file()));
  }
}

void read_defaults(Draft& draft, const TableReader& root) {
  const TomlValue none;
  const TomlValue* derive = root.find("derive");
  const TomlValue* param = root.find("param");
  const TableReader derives(derive ? *derive : none, "[derive]", root.file());
  auto& out = draft.out;
  const std::size_t parameters = out.parameters.size(), total = parameters + out.derives.size();

  // The first pass compiles with the derives in the order of the text, to find what each needs. The second
  // pass uses their final slots, where those differ.
  const auto compile_all = [&] {
    for (std::size_t i = 0; i < parameters; ++i) {
      const TableReader reader(param->members[i].second, "[param." + out.parameters[i].name + ']',
                               root.file());
      out.parameters[i].default_value = compile_default(out.parameters[i], reader, draft.resolve);
    }
    for (auto& [name, expression] : out.derives) expression = derives.expression(name, draft.resolve);
  };
  compile_all();
  std::vector<std::vector<int>> needs(total);
  for (std::size_t i = 0; i < total; ++i) {
    const Expression& e =
        i < parameters ? out.parameters[i].default_value : out.derives[i - parameters].second;
    std::copy_if(e.reads().begin(), e.reads().end(), std::back_inserter(needs[i]),
                 [&](int slot) { return slot < static_cast<int>(total); });
  }
  const auto name_of = [&](int i) {
    const auto index = static_cast<std::size_t>(i);
    return index < parameters ? out.parameters[index].name : out.derives[index - parameters].first;
  };
  const std::vector<int> order = topological_order(needs, [&](const std::vector<int>& cycle) {
    std::vector<std::string> names;
    for (const int i : cycle) names.push_back(name_of(i));
    const bool derived = cycle[0] >= static_cast<int>(parameters);
    const TableReader& reader = derived ? derives : TableReader(*param, "[param]", root.file());
    reader.fail(names[0], "defaults and derives need each other: " + base::join(names, " -> "));
  });

  std::vector<std::pair<std::string, Expression>> sorted;
  bool moved = false;
  for (const int i : order) {
    if (i < static_cast<int>(parameters)) {
      out.resolve_order.push_back(i);
      continue;
    }
    const int slot = out.slots.derive_slot(static_cast<int>(sorted.size()));
    out.resolve_order.push_back(slot);
    sorted.push_back(std::move(out.derives[static_cast<std::size_t>(i) - parameters]));
    if (slot == i) continue;
    moved = true;
    draft.resolve.slots[sorted.back().first] = slot;
  }
  out.derives = std::move(sorted);
  if (moved) compile_all();
}

}  // namespace kiln::source
