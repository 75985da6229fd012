// [[arg]] and [runtime]: shapes, strides, values, fills.
#include <algorithm>
#include <charconv>

#include "base/text.hpp"
#include "source/manifest_draft.hpp"
#include "source/quote.hpp"

namespace kiln::source {
namespace {
using Kind = TomlValue::Kind;
constexpr std::size_t kMaxShape = 8;

std::optional<double> number_from(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size() || out - out != 0)
    return std::nullopt;  // no nan, no infinity
  return out;
}

ArgumentSpec::Fill read_fill(const TableReader& reader) {
  using Fill = ArgumentSpec::Fill;
  struct Form {
    std::string_view name;
    Fill::Kind kind;
    std::size_t arguments;
  };
  constexpr Form forms[] = {{"normal", Fill::Kind::normal, 2},
                            {"uniform", Fill::Kind::uniform, 2},
                            {"int", Fill::Kind::integer, 2},
                            {"const", Fill::Kind::constant, 1}};
  const std::string text = reader.need_line("fill");
  const auto open = text.find('(');
  const auto fail = [&](const std::string& why) {
    reader.fail("fill",
                quote(text) + why + "; allowed: normal(mean, sd) uniform(lo, hi) int(lo, hi) const(v)");
  };
  if (open == std::string::npos || text.back() != ')') fail(" is no fill");
  const auto form = std::find_if(std::begin(forms), std::end(forms),
                                 [&](const Form& f) { return f.name == text.substr(0, open); });
  if (form == std::end(forms)) fail(" is unknown");
  std::vector<double> values;
  for (const std::string& piece : base::split(text.substr(open + 1, text.size() - open - 2), ',')) {
    const auto value = number_from(piece);
    if (!value) fail(": " + quote(piece) + " is no number");
    values.push_back(*value);
  }
  if (values.size() != form->arguments) fail(" takes " + std::to_string(form->arguments) + " number(s)");
  Fill out{form->kind, values[0], values.back()};
  const bool interval = out.kind == Fill::Kind::uniform || out.kind == Fill::Kind::integer;
  if (interval && out.a > out.b) fail(": the lower bound comes first");
  if (out.kind == Fill::Kind::integer) {
    // Beyond 2^53 a double is not exact.
    const auto whole = [](double v) {
      return v >= -9007199254740992.0 && v <= 9007199254740992.0 &&
             v == static_cast<double>(static_cast<std::int64_t>(v));
    };
    if (!whole(out.a) || !whole(out.b)) fail(": int takes whole numbers");
  }
  if (out.kind == Fill::Kind::normal && out.b < 0) fail(": a standard deviation is not negative");
  return out;
}

Access read_access(const TableReader& reader) {
  const std::string text = reader.text_or("access", "read");
  if (text == "read") return Access::read;
  if (text == "write") return Access::write;
  if (text == "readwrite") return Access::readwrite;
  reader.fail("access", quote(text) + " is unknown; allowed: read write readwrite");
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

void read_argument(ArgumentSpec& out, const TableReader& reader, const Symbols& symbols) {
  const bool pointer = out.type.kind == ArgumentType::Kind::pointer;
  for (const std::string_view key : {"access", "shape", "stride", "align", "exists", "fill"}) {
    if (!pointer && reader.has(key)) reader.fail(key, "only pointers have it");
  }
  out.doc = reader.text_or("doc", "");
  out.access = read_access(reader);
  out.shape = reader.expressions("shape", symbols, kMaxShape);
  out.stride = reader.expressions("stride", symbols, kMaxShape);
  if (!out.stride.empty() && out.stride.size() != out.shape.size()) {
    reader.fail("stride", "has " + std::to_string(out.stride.size()) + " dimensions, and shape has " +
                              std::to_string(out.shape.size()));
  }
  out.align = reader.expression("align", symbols);
  out.exists = reader.expression("exists", symbols);
  out.optional = reader.boolean_or("optional", false);
  if (reader.has("fill")) out.fill = read_fill(reader);
  read_value(out, reader, symbols);
  const bool none = out.value.empty() && !out.float_value;
  if (out.optional && !pointer && none)
    reader.fail("optional", "an optional number needs a value, which an omitted one gets");
}

/// `value` expressions may read other arguments: finds the order in which they can be worked out.
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
      if (slot >= first && slot < out.slots.arch_slot()) needs[i].push_back(slot - first);
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
    const TableReader reader(*tables[i], "[[arg]] " + quote(argument.name), root.file());
    read_argument(argument, reader, draft.launch);
    if (i > 0 && draft.out.arguments[i - 1].optional && !argument.optional) {
      reader.fail("optional", "every argument after an optional one must be optional too (" +
                                  quote(draft.out.arguments[i - 1].name) + " is)");
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
