// TOML text as a plain tree in the order of the text, with line numbers. Keeps the
// parser's header in one file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::source {

struct TomlValue {
  enum class Kind { string, integer, real, boolean, array, table, date };

  Kind kind = Kind::table;
  int line = 0;
  std::string string;
  std::int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::vector<TomlValue> items;                            ///< items of an array
  std::vector<std::pair<std::string, TomlValue>> members;  ///< members of a table, as declared

  TomlValue();
  /// Null when there is no such member.
  const TomlValue* find(std::string_view key) const noexcept;
  /// "a string", "a table", ...
  const char* kind_name() const noexcept;
};

// A constructor inside the class would need std::pair<std::string, TomlValue> before TomlValue is complete: in
// C++20 libstdc++'s vectors are constexpr. clang 14 refuses that.
inline TomlValue::TomlValue() = default;

/// Throws Error(manifest) "FILE:LINE: ..." for text that is not TOML.
TomlValue parse_toml(std::string_view text, const std::string& file);

}  // namespace kiln::source
