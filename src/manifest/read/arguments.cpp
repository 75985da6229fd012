#include "manifest/read/arguments.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/read/fill.hpp"
#include "manifest/read/order.hpp"

namespace kiln::source {
namespace {
using Kind = TomlValue::Kind;
constexpr std::size_t kMaxShape = 8;

Access read_access(const TableReader& reader) {
  const std::string text = reader.text_or("access", "read");
  if (text == "read") return Access::read;
  if (text == "write") return Access::write;
  if (text == "readwrite") return Access::readwrite;
  reader.fail("access", base::quote(text) + " is unknown; allowed: read write readwrite");
}

void read_value(ArgumentSpec& out, const TableReader& reader, const Symbols& symbols) {
  const TomlValue* value = reader.find("value");
  if (!value) return;
  switch (out.type.kind) {
    case ArgumentType::Kind::f32:
    case ArgumentType::Kind::f64:
      if (value->kind != Kind::real && value->kind != Kind::integer)
        reader.fail_wanted("value", *value, "a number");
      out.float_value = value->kind == Kind::real ? value->real : static_cast<double>(value->integer);
      return;
    case ArgumentType::Kind::pointer:
    case ArgumentType::Kind::structure:
    case ArgumentType::Kind::tensormap:
      reader.fail("value", "only numbers have a value; pointers have a fill");
    default:
      out.value = reader.expression("value", symbols);
  }
}

void read_argument(const Draft& draft, ArgumentSpec& out, const TableReader& reader) {
  const Symbols &symbols = draft.launch, &run = draft.run;
  const bool pointer = out.type.kind == ArgumentType::Kind::pointer;
  for (const std::string_view key : {"access", "shape", "stride", "align", "exists", "fill"}) {
    if (!pointer && reader.has(key)) reader.fail(key, "only pointers have it");
  }
  out.doc = reader.text_or("doc", "");
  out.access = read_access(reader);
  out.shape = reader.expressions("shape", run, kMaxShape);
  out.stride = reader.expressions("stride", run, kMaxShape);
  if (!out.stride.empty() && out.stride.size() != out.shape.size()) {
    reader.fail("stride", "has " + std::to_string(out.stride.size()) + " dimensions, and shape has " +
                              std::to_string(out.shape.size()));
  }
  out.align = reader.expression("align", symbols);
  out.exists = reader.expression("exists", run);
  out.optional = reader.boolean_or("optional", false);
  if (reader.has("fill")) out.fill = read_fill(draft, out, reader);
  read_value(out, reader, symbols);
  const bool none = out.value.empty() && !out.float_value;
  if (out.optional && !pointer && none)
    reader.fail("optional", "an optional number needs a value, for calls that omit it");
}

/// Finds an order in which `value` expressions can be computed, because they may read other arguments.
void order_values(Draft& draft, const TableReader& root) {
  Manifest& out = draft.out;
  const int first = out.slots.argument_slot(0);
  const auto value_of = [&](std::size_t i) -> const Expression& {
    return i < out.arguments.size() ? out.arguments[i].value : out.runtime[i - out.arguments.size()].value;
  };
  const auto name_of = [&](int i) {
    const auto index = static_cast<std::size_t>(i);
    return index < out.arguments.size() ? out.arguments[index].name
                                        : out.runtime[index - out.arguments.size()].name;
  };
  const std::size_t total = out.arguments.size() + out.runtime.size();
  std::vector<std::vector<int>> needs(total);
  for (std::size_t i = 0; i < total; ++i) {
    for (const int slot : value_of(i).reads()) {
      if (slot >= first && slot < out.slots.run_slot(0)) needs[i].push_back(slot - first);
    }
  }
  const auto order = topological_order(needs, [&](const std::vector<int>& cycle) {
    std::vector<std::string> names;
    for (const int i : cycle) names.push_back(name_of(i));
    root.fail("arg", "values need each other: " + base::join(names, " -> "));
  });
  for (const int i : order) {
    if (!value_of(static_cast<std::size_t>(i)).empty()) out.value_order.push_back(first + i);
  }
}

}  // namespace

void read_arguments(Draft& draft, const TableReader& root) {
  const auto tables = root.tables("arg");
  for (std::size_t i = 0; i < tables.size(); ++i) {
    ArgumentSpec& argument = draft.out.arguments[i];
    const TableReader reader(*tables[i], "[[arg]] " + base::quote(argument.name), root.file());
    read_argument(draft, argument, reader);
    if (i > 0 && draft.out.arguments[i - 1].optional && !argument.optional) {
      reader.fail("optional", "every argument after an optional one must be optional too (" +
                                  base::quote(draft.out.arguments[i - 1].name) + " is)");
    }
  }
  if (const TomlValue* runtime = root.find("runtime")) {
    for (std::size_t i = 0; i < runtime->members.size(); ++i) {
      RuntimeValueSpec& value = draft.out.runtime[i];
      const TableReader reader(runtime->members[i].second, "[runtime] " + value.name, root.file(),
                               {"value", "doc"});
      value.doc = reader.text_or("doc", "");
      value.value = reader.expression("value", draft.launch);
    }
  }
  order_values(draft, root);
}

}  // namespace kiln::source
