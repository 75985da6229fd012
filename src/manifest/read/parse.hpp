// The steps of parse_manifest, and what several of them check.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

/// One entry point of one arch: the tree without [arch.*] and [[kernel]].
Manifest parse_tree(const TomlValue& tree, const std::string& file, WorkListKinds work_lists);

/// Throws unless `name` is an identifier that is not reserved and not taken; takes it.
void take_name(Draft& draft, const TableReader& reader, std::string_view key, const std::string& name,
               const char* what);
/// Checks every {NAME} of a text that becomes C++; fails with `key`.
void check_cpp(const Draft& draft, const TableReader& reader, std::string_view key, const std::string& text);
/// A name expression with every {NAME} checked.
std::string name_expression(const Draft& draft, const TableReader& reader, std::string_view key);

}  // namespace kiln::source
