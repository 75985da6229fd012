// The steps of parse_manifest, and checks that several steps use.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// Parses one entry point for one arch, from a tree without [arch.*] and [[kernel]].
Manifest parse_tree(const TomlValue& tree, const std::string& file, WorkListKinds work_lists);

/// Throws unless `name` is an identifier that is neither reserved nor taken; then marks it as taken.
void take_name(Draft& draft, const TableReader& reader, std::string_view key, const std::string& name,
               const char* what);
/// Checks every {NAME} of a text that becomes C++. An error names `key`.
void check_cpp(const Draft& draft, const TableReader& reader, std::string_view key, const std::string& text);
/// Reads a name expression and checks every {NAME} in it.
std::string name_expression(const Draft& draft, const TableReader& reader, std::string_view key);

}  // namespace kiln::source
