#include "source/toml_tree.hpp"

#include <algorithm>

#include "kiln/error.hpp"

// Compiled in: one parser less to find at run time, and its symbols stay hidden.
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_UNRELEASED_FEATURES 0
#define TOML_ASSERT(condition) \
  static_cast<void>(0)  // malformed input trips them; the errors that follow are proper
#include <toml++/toml.h>

namespace kiln::source {
namespace {

int line_of(const toml::source_region& region) { return static_cast<int>(region.begin.line); }

TomlValue convert(const toml::node& node);

TomlValue convert(const toml::table& table) {
  struct Member {
    toml::source_position at;
    std::string key;
    const toml::node* node;
  };
  std::vector<Member> members;
  for (const auto& [key, node] : table)
    members.push_back({key.source().begin, std::string(key.str()), &node});
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return a.at < b.at; });
  TomlValue out;
  for (const Member& member : members) {
    out.members.emplace_back(member.key, convert(*member.node));
    TomlValue& value = out.members.back().second;
    if (value.line == 0) value.line = static_cast<int>(member.at.line);
  }
  return out;
}

TomlValue convert(const toml::node& node) {
  using Kind = TomlValue::Kind;
  TomlValue out;
  if (const auto* table = node.as_table()) {
    out = convert(*table);
  } else if (const auto* array = node.as_array()) {
    out.kind = Kind::array;
    for (const toml::node& item : *array) out.items.push_back(convert(item));
  } else if (const auto* string = node.as_string()) {
    out.kind = Kind::string;
    out.string = string->get();
  } else if (const auto* integer = node.as_integer()) {
    out.kind = Kind::integer;
    out.integer = integer->get();
  } else if (const auto* real = node.as_floating_point()) {
    out.kind = Kind::real;
    out.real = real->get();
  } else if (const auto* boolean = node.as_boolean()) {
    out.kind = Kind::boolean;
    out.boolean = boolean->get();
  } else {
    out.kind = Kind::date;
  }
  out.line = line_of(node.source());
  return out;
}

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
  try {
    TomlValue out = convert(toml::parse(text));
    out.line = 1;
    return out;
  } catch (const toml::parse_error& error) {
    throw Error(Errc::manifest, file + ':' + std::to_string(line_of(error.source())) + ": " +
                                    std::string(error.description()));
  }
}

}  // namespace kiln::source
