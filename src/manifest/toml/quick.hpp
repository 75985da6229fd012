// A fast reader of the TOML that manifests use. toml++ takes 100 instructions per character, which made the
// manifest the longest step of a process's first kernel.
#pragma once

#include <optional>
#include <string_view>

#include "manifest/toml/tree.hpp"

namespace kiln::source {

/// Reads a text in printable ASCII with bare keys, tables, arrays, inline tables, strings without escapes,
/// decimal numbers and booleans. Returns nothing for any other text, right or wrong: toml++ then reads it.
std::optional<TomlValue> quick_toml(std::string_view toml);

}  // namespace kiln::source
