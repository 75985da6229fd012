#include "tools/kiln/lint/lines.hpp"

#include "tools/kiln/lint/manifest.hpp"

namespace kiln::cli {
namespace {

const source::TomlValue* named(const source::TomlValue* array, std::string_view name) {
  if (!array) return nullptr;
  for (const source::TomlValue& item : array->items) {
    const source::TomlValue* found = item.find("name");
    if (found && found->string == name) return &item;
  }
  return nullptr;
}

}  // namespace

std::string ManifestLines::of(std::initializer_list<std::string_view> path) const {
  const source::TomlValue* at_value = &tree_;
  int line = 0;
  for (const std::string_view key : path) {
    at_value = at_value->find(key);
    if (!at_value) break;
    line = at_value->line;
  }
  return at(line);
}

std::string ManifestLines::argument(std::string_view name) const {
  if (const source::TomlValue* found = named(tree_.find("arg"), name)) return at(found->line);
  const source::TomlValue* kernels = tree_.find("kernel");
  for (std::size_t i = 0; kernels && i < kernels->items.size(); ++i)
    if (const source::TomlValue* found = named(kernels->items[i].find("arg"), name)) return at(found->line);
  return file_;
}

std::string ManifestLines::entry(std::string_view name) const {
  const source::TomlValue* found = named(tree_.find("kernel"), name);
  return found ? at(found->line) : of({"template", "instantiate"});
}

}  // namespace kiln::cli
