// A reader of the TOML that manifests are written in. toml++ takes 100 instructions for each character of a
// text, which made the manifest the longest step of a process's first kernel.
#pragma once

#include <optional>
#include <string_view>

#include "manifest/toml/tree.hpp"

namespace kiln::source {

/// The tree of a text in printable ASCII with bare keys, tables, arrays, inline tables, strings without
/// escapes, decimal numbers and booleans. Nothing for every other text, right or wrong: toml++ judges it.
std::optional<TomlValue> quick_toml(std::string_view toml);

}  // namespace kiln::source
