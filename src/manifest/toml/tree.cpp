#include "manifest/toml/tree.hpp"

#include <algorithm>

#include "kiln/error.hpp"
#include "manifest/toml/quick.hpp"

// Compiled in: there is one library less to find at run time, and its symbols stay hidden.
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_UNRELEASED_FEATURES 0
#define TOML_ASSERT(condition) \
  static_cast<void>(0)  // malformed input trips assertions; the errors that follow are proper
#include <toml++/toml.h>

namespace kiln::source {
namespace {

int line_of(const toml::source_region& region) { return static_cast<int>(region.begin.line); }

/// Copies toml++'s tree.
class Conversion {
 public:
  void table(TomlValue& out, const toml::table& table) const {
    std::vector<std::pair<const toml::key*, const toml::node*>> members;
    members.reserve(table.size());
    for (auto it = table.begin(); it != table.end(); ++it) members.emplace_back(&it->first, &it->second);
    std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
      return a.first->source().begin < b.first->source().begin;
    });
    out.members.reserve(members.size());
    for (const auto& [key, node_of_key] : members) {
      auto& [name, value] = out.members.emplace_back();
      name = key->str();
      node(value, *node_of_key);
      if (value.line == 0) value.line = line_of(key->source());
    }
  }

 private:
  void node(TomlValue& out, const toml::node& node) const {
    using Kind = TomlValue::Kind;
    out.line = line_of(node.source());
    switch (node.type()) {
      case toml::node_type::table:
        return table(out, *node.as_table());
      case toml::node_type::array: {
        out.kind = Kind::array;
        const toml::array& array = *node.as_array();
        out.items.reserve(array.size());
        for (const toml::node& item : array) this->node(out.items.emplace_back(), item);
        return;
      }
      case toml::node_type::string:
        out.kind = Kind::string;
        out.string = node.as_string()->get();
        return;
      case toml::node_type::integer:
        out.kind = Kind::integer;
        out.integer = node.as_integer()->get();
        return;
      case toml::node_type::floating_point:
        out.kind = Kind::real;
        out.real = node.as_floating_point()->get();
        return;
      case toml::node_type::boolean:
        out.kind = Kind::boolean;
        out.boolean = node.as_boolean()->get();
        return;
      default:
        out.kind = Kind::date;
    }
  }
};

}  // namespace

const TomlValue* TomlValue::find(std::string_view key) const noexcept {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

const char* TomlValue::kind_name() const noexcept {
  constexpr const char* names[] = {"a string", "an integer", "a fraction", "true or false",
                                   "an array", "a table",    "a date"};
  return names[static_cast<int>(kind)];
}

TomlValue parse_toml(std::string_view text, const std::string& file) {
  if (auto tree = quick_toml(text)) return std::move(*tree);
  try {
    TomlValue out;
    Conversion().table(out, toml::parse(text));
    out.line = 1;
    return out;
  } catch (const toml::parse_error& error) {
    throw Error(Errc::manifest, file + ':' + std::to_string(line_of(error.source())) + ": " +
                                    std::string(error.description()));
  }
}

}  // namespace kiln::source
