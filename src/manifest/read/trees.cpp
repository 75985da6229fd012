#include "manifest/read/trees.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "manifest/read/order.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {
namespace {

void remove(TomlValue& table, std::string_view key) {
  std::erase_if(table.members, [&](const auto& member) { return member.first == key; });
}

void put(TomlValue& table, const std::string& key, TomlValue value) {
  for (auto& [name, present] : table.members) {
    if (name != key) continue;
    present = std::move(value);
    return;
  }
  table.members.emplace_back(key, std::move(value));
}

TomlValue& member(TomlValue& table, const std::string& key, int line) {
  for (auto& [name, present] : table.members) {
    if (name == key) return present;
  }
  TomlValue fresh;
  fresh.line = line;
  return table.members.emplace_back(key, std::move(fresh)).second;
}

/// Puts every key of `over` into `table`, and replaces keys that are already there.
void merge(TomlValue& table, const TomlValue& over) {
  for (const auto& [key, value] : over.members) put(table, key, value);
}

/// Adds to a table or array that is already there. The main entry point has the manifest's [runtime] and
/// [[require]] and its own.
void add(TomlValue& table, const std::string& key, const TomlValue& value) {
  TomlValue* present = nullptr;
  for (auto& [name, there] : table.members) {
    if (name == key && there.kind == value.kind) present = &there;
  }
  if (present && value.kind == TomlValue::Kind::array)
    present->items.insert(present->items.end(), value.items.begin(), value.items.end());
  else if (present && value.kind == TomlValue::Kind::table)
    merge(*present, value);
  else
    put(table, key, value);
}

/// The tree with [arch.sm_90a] put over the rest.
TomlValue overridden(const TomlValue& tree, const TableReader& over) {
  TomlValue out = tree;
  remove(out, "arch");
  const int line = over.table().line;
  TomlValue& template_table = member(out, "template", line);
  for (const std::string key : {"source", "instantiate", "arguments"}) {
    if (const TomlValue* value = over.find(key)) put(template_table, key, *value);
  }
  for (const std::string key : {"compile", "launch"}) {
    const TomlValue* value = over.find(key);
    if (!value) continue;
    if (value->kind != TomlValue::Kind::table) over.fail_wanted(key, *value, "a table");
    merge(member(out, key, line), *value);
  }
  if (const TomlValue* defaults = over.find("default")) {
    const TableReader values(*defaults, over.title() + " default", over.file());
    TomlValue& parameters = member(out, "param", line);
    for (const auto& [name, value] : defaults->members) {
      const TomlValue* known = parameters.find(name);
      if (!known) {
        std::vector<std::string> names;
        for (const auto& [parameter, table] : parameters.members) names.push_back(parameter);
        values.fail(name, base::quote(name) + " is no parameter" + base::did_you_mean(name, names) +
                              "; known: " + base::join(names, " "));
      }
      put(member(parameters, name, line), "default", value);
    }
  }
  return out;
}

}  // namespace

void add_default_sources(TomlValue& tree) {
  const auto member = [&](TomlValue& table, std::string_view key) -> TomlValue* {
    for (auto& [name, value] : table.members)
      if (name == key && value.kind == TomlValue::Kind::table) return &value;
    return nullptr;
  };
  TomlValue* const main = member(tree, "template");
  const TomlValue* const name = main ? main->find("name") : nullptr;
  if (!name || name->kind != TomlValue::Kind::string) return;  // the reader says what is wrong
  const auto add_to = [&](TomlValue& table, const char* ending) {
    TomlValue source;
    source.kind = TomlValue::Kind::string, source.line = table.line, source.string = name->string + ending;
    if (!table.find("source")) put(table, "source", source);
  };
  if (TomlValue* reference = member(tree, "reference")) add_to(*reference, ".reference.cu");
  if (const TomlValue* archs = member(tree, "arch"))
    for (const auto& [arch, over] : archs->members)
      if (over.find("source")) return;
  add_to(*main, ".cu");
}

ArchTrees split_archs(TomlValue tree, const std::string& file) {
  const TomlValue* archs = tree.find("arch");
  if (!archs) return {std::move(tree), {}};
  ArchTrees out{tree, {}};
  remove(out.base, "arch");
  const TableReader reader(*archs, "[arch]", file);
  for (const auto& [name, table] : archs->members) {
    const TableReader over(table, "[arch." + name + ']', file,
                           {"source", "instantiate", "arguments", "compile", "default", "launch"});
    const TomlValue* main = tree.find("template");
    for (const std::string key : {"instantiate", "arguments", "launch"}) {
      if (over.has(key) && tree.find("kernel") && !(main && main->find("instantiate")))
        over.fail(key,
                  "applies only to the entry point that [template] instantiate names, and there is none: an "
                  "override reaches no [[kernel]]");
    }
    base::Arch arch;
    try {
      arch = base::Arch::parse(name);
    } catch (const Error& error) {
      reader.fail(name, error.what());
    }
    if (std::any_of(out.variants.begin(), out.variants.end(), [&](const auto& v) { return v.first == arch; }))
      reader.fail(name, arch.name() + " is overridden twice");
    out.variants.emplace_back(arch, overridden(tree, over));
  }
  if (out.variants.empty()) reader.fail("", "must hold tables such as [arch.sm_90a]");
  const TomlValue* template_table = tree.find("template");
  const bool named = tree.find("kernel") || (template_table && template_table->find("instantiate"));
  if (!template_table || template_table->kind != TomlValue::Kind::table ||
      (template_table->find("source") && named))
    return out;

  out.base = out.variants.front().second;
  out.base_is_variant = true;
  return out;
}

std::vector<std::pair<std::string, TomlValue>> split_entries(TomlValue tree, const std::string& file) {
  const TableReader root(tree, "", file);
  const auto kernels = root.tables("kernel");
  std::vector<std::pair<std::string, TomlValue>> out;
  if (!root.has("kernel")) {
    out.emplace_back("", std::move(tree));
    return out;
  }
  TomlValue rest = tree;
  remove(rest, "kernel");
  const TomlValue* template_table = tree.find("template");
  const bool shorthand = template_table && template_table->find("instantiate");
  if (shorthand || kernels.empty()) {
    out.emplace_back("", rest);
  } else {
    for (const std::string key : {"arg", "tensormap", "launch"}) {
      if (root.has(key))
        root.fail(key,
                  "belongs to the entry point that [template] instantiate names, and there is none; write "
                  "it inside its [[kernel]]");
    }
  }
  for (const TomlValue* kernel : kernels) {
    const TableReader reader(
        *kernel, "[[kernel]]", file,
        {"name", "instantiate", "doc", "arguments", "arg", "tensormap", "launch", "runtime", "require"});
    const std::string name = reader.need_line("name");
    if (!base::is_identifier(name))
      reader.fail("name", base::quote(name) + " must be [A-Za-z_][A-Za-z0-9_]*");
    for (const auto& [other, of] : out) {
      if (other == name) reader.fail("name", "two entry points are called " + base::quote(name));
    }
    reader.need_line("instantiate");
    reader.need("launch");
    TomlValue own = rest;
    put(member(own, "template", kernel->line), "instantiate", reader.need("instantiate"));
    // The manifest's [runtime], [[require]] and so on belong to the main entry point. That is the first
    // [[kernel]] when [template] has no `instantiate`.
    if (!out.empty()) {
      for (const char* key : {"arg", "tensormap", "launch", "runtime", "require", "work_list", "plan",
                              "reference", "cost", "global", "prewarm", "bind", "family"})
        remove(own, key);
      remove(member(own, "template", kernel->line), "arguments");
    }
    if (const TomlValue* arguments = reader.find("arguments"))
      put(member(own, "template", kernel->line), "arguments", *arguments);
    for (const std::string key : {"arg", "tensormap", "launch", "runtime", "require"}) {
      if (const TomlValue* value = reader.find(key)) add(own, key, *value);
    }
    out.emplace_back(name, std::move(own));
  }
  return out;
}

}  // namespace kiln::source
